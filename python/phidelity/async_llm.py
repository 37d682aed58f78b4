"""AsyncLLM: answers as asynchronous streams, under vLLM's names."""
from __future__ import annotations

import asyncio
import itertools
import os
import sys

from ._core import Core, Facts
from .engine import Request, Waker
from .engine_args import EngineArgs
from .exceptions import EngineClosedError, ValidationError, refuse_lora
from .inputs import parse_prompt
from .sampling_params import RequestOutputKind, SamplingParams

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable
    from typing import Any

    from .inputs import PromptType
    from .outputs import RequestOutput


class AsyncEngineArgs(EngineArgs):
    """The arguments of AsyncLLM in one object, for AsyncLLM.from_engine_args."""


class AsyncLLM(Facts):
    """As LLM, with the same arguments and errors, for one event loop at a time.

    Methods are to be called from the loop's thread. A generator that is closed, or whose task is cancelled,
    cancels its request.
    """

    def __init__(self, model: str, **kwargs: Any) -> None:
        self._core = Core("AsyncLLM", model, **kwargs)
        self._numbers = itertools.count()
        self._listening: tuple[asyncio.AbstractEventLoop, Waker] | None = None
        self._events: dict[int, asyncio.Event] = {}

    @classmethod
    def from_engine_args(cls, engine_args: AsyncEngineArgs, **unused: Any) -> AsyncLLM:
        """AsyncLLM(**vars(engine_args))."""
        return cls(**vars(engine_args))

    async def generate(
        self,
        prompt: PromptType,
        sampling_params: SamplingParams | None = None,
        request_id: str | None = None,
        *,
        lora_request: None = None,
        priority: int = 0,
        tokenization_kwargs: dict[str, Any] | None = None,
    ) -> AsyncIterator[RequestOutput]:
        """Yields the answer as it grows: sampling_params.output_kind says whether each output holds all so
        far (CUMULATIVE, the default), what is new (DELTA), or comes only once (FINAL_ONLY). Tokens that
        came while nobody asked are in the next output. The last one has finished=True.

        prompt: as one prompt of LLM.generate. Raises as that does, at the first step of the iteration.
        """
        refuse_lora(lora_request)
        params = self._core.defaults if sampling_params is None else sampling_params
        if not isinstance(params, SamplingParams):
            raise TypeError(f"sampling_params must be SamplingParams, got {type(params).__name__}")
        waker = self._listen()
        request = self._core.request(self._core.encode(parse_prompt(prompt), tokenization_kwargs), params, request_id)
        number = next(self._numbers)
        event = self._events[number] = asyncio.Event()
        only_end = params.output_kind == RequestOutputKind.FINAL_ONLY
        try:
            self._core.submit(waker, number, request, each_event=not only_end, priority=priority)
            while not request.finished:
                await event.wait()
                event.clear()
                if request.failure is not None:
                    raise request.failure
                if request.finished or not only_end:
                    yield request.output(not self._core.disable_log_stats,
                                         params.output_kind == RequestOutputKind.DELTA)
        finally:
            del self._events[number]
            if waker.requests.pop(number, None) is not None:
                request.release()

    def _listen(self) -> Waker:
        """The waker, in the running loop."""
        self._core.engine.check()
        running = asyncio.get_running_loop()
        if self._listening is not None:
            loop, waker = self._listening
            if loop is running:
                return waker
            if not loop.is_closed():
                raise RuntimeError("this AsyncLLM is in use in another event loop")
            waker.close()
        waker = self._core.waker()
        waker.has_reader = False
        self._listening = running, waker
        running.add_reader(waker.fd, self._on_news, waker)
        return waker

    def _on_news(self, waker: Waker) -> None:
        for request, number in waker.take():
            if request.read() or request.finished:
                self._events[number].set()

    async def abort(self, request_id: str | Iterable[str]) -> None:
        """Ends requests; their last output has finish_reason "abort". Unknown ids are no error."""
        ids = [request_id] if isinstance(request_id, str) else list(request_id)
        for request in self._requests():
            if request.request_id in ids:
                request.cancel()

    def _requests(self) -> list[Request]:
        return list(self._listening[1].requests.values()) if self._listening is not None else []

    @property
    def is_running(self) -> bool:
        """Whether it can be asked."""
        return not self._core.engine.closed

    @property
    def is_stopped(self) -> bool:
        """Whether it was shut down."""
        return self._core.engine.closed

    @property
    def errored(self) -> bool:
        """As is_stopped: a failed request is that request's error only."""
        return self._core.engine.closed

    async def do_log_stats(self) -> None:
        """Does nothing: get_metrics() has the figures."""

    async def encode(self, *unused: Any, **also_unused: Any) -> None:
        """Raises ValueError, as vLLM does on a model that generates."""
        raise ValidationError("AsyncLLM.encode() is only supported for pooling models; this model generates text")

    async def check_health(self) -> None:
        """Raises EngineClosedError when the engine is closed."""
        self._core.engine.check()

    async def reset_prefix_cache(self, *unused: Any) -> bool:
        """As of LLM."""
        self._core.reset_prefix_cache()
        return True

    def shutdown(self, timeout: float | None = None) -> None:
        """Ends every stream with EngineClosedError and frees the engine; `timeout` has no effect."""
        if self._listening is not None and os.getpid() == self._core.engine.pid:
            loop, waker = self._listening
            for request in waker.requests.values():
                request.failure = EngineClosedError("this AsyncLLM was shut down")
            if not loop.is_closed():
                loop.remove_reader(waker.fd)
                for event in self._events.values():
                    event.set()
            waker.close()
            self._listening = None
        self._core.close()

    def __del__(self) -> None:
        if hasattr(self, "_listening") and not sys.is_finalizing():
            self.shutdown()
