"""The errors of this package that are not Python's own."""
from __future__ import annotations


class ValidationError(ValueError):
    """A prompt, parameter or setting that cannot be used; counterpart of vLLM's VLLMValidationError.

    `parameter` and `value` name the culprit where there is one.
    """

    def __init__(self, message: str, *, parameter: str | None = None, value: object = None) -> None:
        super().__init__(message)
        self.parameter = parameter
        self.value = value

    def __str__(self) -> str:
        text = super().__str__()
        return text if self.parameter is None else f"{text} (parameter={self.parameter}, value={self.value})"


VLLMValidationError = ValidationError


class ChatTemplateResolutionError(ValidationError):
    """The checkpoint has no chat template and the call brings none."""


class EngineError(RuntimeError):
    """The engine could not compute an answer: NaN logits, or a bug that the text describes."""


class EngineClosedError(RuntimeError):
    """The LLM was closed, or belongs to the process that this one was forked from."""
