"""phidelity: Microsoft's Phi language models on a CPU, with vLLM's Python interface.

    from phidelity import LLM, SamplingParams

    llm = LLM("models/phi3-tiny-chat")
    for output in llm.generate(["Tom has 3 apples."], SamplingParams(temperature=0, max_tokens=32)):
        print(output.outputs[0].text)

docs/PYTHON.md has what is the same as in vLLM and what is not.
"""
from __future__ import annotations

from ._library import __version__, start_log
from .exceptions import (ChatTemplateResolutionError, EngineClosedError, EngineError, ValidationError,
                         VLLMValidationError)
from .inputs import TextPrompt, TokensPrompt
from .llm import LLM
from .logprobs import Logprob
from .outputs import CompletionOutput, RequestOutput
from .sampling_params import RequestOutputKind, SamplingParams
from .tokenizer import Tokenizer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .async_llm import AsyncEngineArgs, AsyncLLM

__all__ = ["LLM", "AsyncEngineArgs", "AsyncLLM", "ChatTemplateResolutionError", "CompletionOutput",
           "EngineClosedError", "EngineError", "Logprob", "RequestOutput", "RequestOutputKind", "SamplingParams",
           "TextPrompt", "TokensPrompt", "Tokenizer", "VLLMValidationError", "ValidationError", "__version__"]

start_log()


def __getattr__(name: str) -> object:
    """asyncio takes longer to import than all the rest; it is, when it is needed."""
    if name in ("AsyncLLM", "AsyncEngineArgs"):
        from . import async_llm
        return getattr(async_llm, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
