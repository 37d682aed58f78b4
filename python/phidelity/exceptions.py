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
        known = [f"{name}={getattr(self, name)}" for name in ("parameter", "value") if getattr(self, name) is not None]
        return f"{super().__str__()} ({', '.join(known)})" if known else super().__str__()


VLLMValidationError = ValidationError


class ChatTemplateResolutionError(ValidationError):
    """The checkpoint has no chat template and the call brings none."""


def refuse_lora(lora_request: object) -> None:
    """Raises ValidationError for an adapter, or a list that has one."""
    adapters = lora_request if isinstance(lora_request, (list, tuple)) else [lora_request]
    if any(adapters):
        raise ValidationError("LoRA adapters are not supported; merge them into the weights",
                              parameter="lora_request", value=lora_request)


class EngineError(RuntimeError):
    """The engine could not compute an answer: NaN logits, or a bug that the text describes."""


class EngineClosedError(RuntimeError):
    """The LLM was closed, or belongs to the process that this one was forked from."""
