"""phidelity: Microsoft's Phi language models on a CPU, with vLLM's Python interface.

    from phidelity import LLM, SamplingParams

    llm = LLM("models/phi3-tiny-chat")
    for output in llm.generate(["Tom has 3 apples."], SamplingParams(temperature=0, max_tokens=32)):
        print(output.outputs[0].text)

docs/PYTHON.md has what is the same as in vLLM and what is not.
"""
from __future__ import annotations

from ._library import __version__, start_log
from .beam_search import BeamSearchOutput, BeamSearchSequence
from .engine_args import EngineArgs
from .exceptions import (ChatTemplateResolutionError, EngineClosedError, EngineError, ValidationError,
                         VLLMValidationError)
from .inputs import TextPrompt, TokensPrompt
from .llm import LLM
from .llm_engine import LLMEngine
from .logprobs import Logprob
from .outputs import CompletionOutput, RequestOutput
from .sampling_params import BeamSearchParams, RequestOutputKind, SamplingParams
from .tokenizer import Tokenizer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .async_llm import AsyncEngineArgs, AsyncLLM
    from .inputs import PromptType

    AsyncLLMEngine = AsyncLLM

__all__ = ["LLM", "AsyncEngineArgs", "AsyncLLM", "AsyncLLMEngine", "BeamSearchOutput", "BeamSearchParams",
           "BeamSearchSequence", "ChatTemplateResolutionError", "CompletionOutput", "EngineArgs", "EngineClosedError", "EngineError", "LLMEngine", "Logprob", "PromptType", "RequestOutput",
           "RequestOutputKind", "SamplingParams", "TextPrompt", "Tokenizer", "TokensPrompt", "ValidationError",
           "VLLMValidationError", "__version__"]

start_log()


def __getattr__(name: str) -> object:
    """asyncio takes longer to import than all the rest; it is, when it is needed."""
    if name in ("AsyncLLM", "AsyncLLMEngine", "AsyncEngineArgs"):
        from . import async_llm
        return getattr(async_llm, "AsyncLLM" if name == "AsyncLLMEngine" else name)
    if name == "PromptType":
        from typing import Any
        return Any  # in annotations of scripts; inputs.py has what a type checker sees
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
