"""LLMEngine: requests one by one and step by step, under vLLM's names; `llm.llm_engine` is one."""
from __future__ import annotations

import sys

from ._core import Core, Facts
from .engine import Waker
from .exceptions import ValidationError, refuse_lora
from .inputs import parse_prompt
from .sampling_params import RequestOutputKind, SamplingParams

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from .engine import Request
    from .engine_args import EngineArgs
    from .inputs import PromptType
    from .model_config import ModelConfig
    from .outputs import RequestOutput


class LLMEngine(Facts):
    """As LLM, with the same arguments and errors, for a caller that drives it:

        engine.add_request("0", "def f(", SamplingParams())
        while engine.has_unfinished_requests():
            for output in engine.step():
                ...

    The engine works on whether or not step is called. For one thread at a time.
    """

    def __init__(self, model: str, **kwargs: Any) -> None:
        self._core = Core("LLMEngine", model, **kwargs)
        self._begin()

    def _begin(self) -> None:
        self._waker: Waker | None = None
        self._n_requests = 0
        self._failure: Exception | None = None

    @classmethod
    def from_engine_args(cls, engine_args: EngineArgs, **unused: Any) -> LLMEngine:
        """LLMEngine(**vars(engine_args))."""
        return cls(**vars(engine_args))

    @classmethod
    def of(cls, core: Core) -> LLMEngine:
        """The one of an LLM."""
        engine = object.__new__(cls)
        engine._core = core
        engine._begin()
        return engine

    def add_request(self, request_id: str, prompt: PromptType, params: SamplingParams,
                    arrival_time: float | None = None, lora_request: None = None,
                    tokenization_kwargs: dict[str, Any] | None = None, *, priority: int = 0) -> str:
        """Queues one prompt, as one of LLM.generate, and returns request_id; arrival_time has no effect.
        Raises as LLM.generate, and ValidationError for the id of a request that is not finished."""
        refuse_lora(lora_request)
        core = self._core
        core.engine.check()
        if not isinstance(request_id, str):
            raise TypeError(f"request_id must be a string, got {type(request_id).__name__}")
        if not isinstance(params, SamplingParams):
            raise TypeError(f"params must be SamplingParams, got {type(params).__name__}")
        if self._waker is None:
            self._waker = core.waker()
            self._waker.has_reader = False
        if any(r.request_id == request_id for r in self._waker.requests.values()):
            raise ValidationError(f"request {request_id!r} is not finished yet", parameter="request_id",
                                  value=request_id)
        request = core.request(core.encode(parse_prompt(prompt), tokenization_kwargs), params, request_id)
        only_end = params.output_kind == RequestOutputKind.FINAL_ONLY
        core.submit(self._waker, self._n_requests, request, each_event=not only_end, priority=priority)
        self._n_requests += 1
        return request_id

    def step(self) -> list[RequestOutput]:
        """Waits until there is something new and returns it, an output for each request that has some; at once
        [] when no request is unfinished. Raises EngineError once for each request whose logits are NaN."""
        self._core.engine.check()
        outputs: list[RequestOutput] = []
        waker = self._waker
        while waker is not None and waker.requests and not outputs and self._failure is None:
            waker.wait()
            for request, number in waker.take():
                if request.read() or request.finished:
                    self._take(waker, request, number, outputs)
        if not outputs and self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        return outputs

    def _take(self, waker: Waker, request: Request, number: int, outputs: list[RequestOutput]) -> None:
        kind = request.params.output_kind
        if request.failure is not None:
            self._failure = request.failure
        elif request.finished or kind != RequestOutputKind.FINAL_ONLY:
            outputs.append(request.output(not self._core.disable_log_stats, kind == RequestOutputKind.DELTA))
        if request.finished:
            del waker.requests[number]
            request.release()

    def abort_request(self, request_ids: str | Sequence[str]) -> None:
        """Ends requests; their last output has finish_reason "abort". Unknown ids are no error."""
        ids = [request_ids] if isinstance(request_ids, str) else request_ids
        for request in self._waker.requests.values() if self._waker is not None else ():
            if request.request_id in ids:
                request.cancel()

    def get_num_unfinished_requests(self) -> int:
        """Requests whose last output step has not returned yet."""
        return 0 if self._waker is None else len(self._waker.requests)

    def has_unfinished_requests(self) -> bool:
        """Whether there are such."""
        return self.get_num_unfinished_requests() > 0

    def get_model_config(self) -> ModelConfig:
        """model_config."""
        return self._core.config

    def close(self) -> None:
        """Cancels what runs and frees the engine."""
        self._core.close()

    def __del__(self) -> None:
        if hasattr(self, "_failure") and not sys.is_finalizing():
            self.close()
