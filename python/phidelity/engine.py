"""The library's engine as objects: Engine, Waker, Request.

Who owns whom: an Engine holds its Model, a Waker its Engine, a Request its Waker; model.py says when
each is freed.
"""
from __future__ import annotations

import os
import select
import time

from ._library import call, exception_of, ffi, ids_of, lib, text_of
from ._sampling import to_c
from .exceptions import EngineClosedError
from .model import Model, free_with, set_fields
from .outputs import RequestOutput, RequestStateStats
from .reading import AnswerReader, PromptReader

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from .inputs import TokenizedPrompt
    from .sampling_params import SamplingParams
    from .tokenizer import Tokenizer

NEWS_AT_ONCE = 256


def _destroy_engine(pointer: Any, model: Model) -> None:
    """`model` is here so that it is still open."""
    lib.phi_engine_destroy(pointer)


class Engine:
    """A running engine on a model. `settings` are fields of struct phi_engine_options."""

    def __init__(self, model: Model, **settings: Any) -> None:
        options = ffi.new("struct phi_engine_options *")
        lib.phi_engine_options_init(options)
        set_fields(options, settings)
        import threading  # here, since it takes a quarter of this package's import

        out = ffi.new("struct phi_engine **")
        call(lib.phi_engine_create, model.pointer, options, out)
        self.model = model
        self.pid = os.getpid()
        self.pointer = out[0]
        self._finalizer = free_with(self, _destroy_engine, out[0], model)
        self.info = ffi.new("struct phi_engine_info *")
        lib.phi_engine_get_info(self.pointer, self.info)
        self.max_logprobs = 20
        self.closed = False
        self._wakers: set[Waker] = set()
        self._changed = threading.Condition()

    def check(self) -> None:
        """Raises EngineClosedError when the engine is closed, or in a forked child."""
        if os.getpid() != self.pid:
            raise EngineClosedError(
                f"this LLM was made in process {self.pid}, and process {os.getpid()} was forked from it: an engine "
                "and its threads do not survive a fork; make an LLM in the child, or start it with 'spawn'")
        if self.closed:
            raise EngineClosedError("this LLM is closed")

    def stats(self) -> Any:
        """What it does now and has done: a struct phi_engine_stats."""
        self.check()
        stats = ffi.new("struct phi_engine_stats *")
        with self._changed:
            self.check()
            lib.phi_engine_get_stats(self.pointer, stats)
        return stats

    def add(self, waker: Waker) -> None:
        with self._changed:
            self.check()
            self._wakers.add(waker)

    def remove(self, waker: Waker) -> None:
        with self._changed:
            self._wakers.discard(waker)
            self._changed.notify_all()

    def close(self) -> None:
        """Cancels what runs, waits until its readers have let go, and frees the engine."""
        if os.getpid() != self.pid or self.closed:
            return
        with self._changed:
            self.closed = True
            wakers = list(self._wakers)
        for waker in wakers:
            waker.abandon()
        with self._changed:
            self._changed.wait_for(lambda: not self._wakers)
            self._finalizer()


class Request:
    """One prompt on its way, and what has been read of its answers."""

    def __init__(self, tokenizer: Tokenizer, request_id: str, prompt: TokenizedPrompt, params: SamplingParams) -> None:
        self.request_id = request_id
        self.prompt = prompt
        self.params = params
        self.out = ffi.new("struct phi_request **")  # NULL until it is submitted and once it is released
        self.answers = [AnswerReader(tokenizer, i, params) for i in range(params.n)]
        self.prompt_reader = PromptReader(tokenizer, params)
        self.arrival_time, self._queued_ts = time.time(), time.monotonic()
        self.failure: Exception | None = None
        self._event = ffi.new("struct phi_event *")

    def read(self) -> bool:
        """Takes all events that are ready. Whether there was one."""
        event, any_news = self._event, False
        while lib.phi_request_next(self.out[0], event, 0) == 1:
            if not any_news:
                self.prompt_reader.read(self.out[0], self.prompt.ids)
            any_news = True
            self.answers[event.index].read(event)
            if event.finish == lib.PHI_FINISH_ERROR and self.failure is None:
                text = ffi.string(event.error).decode("utf-8", "replace") if event.error else "the request failed"
                self.failure = exception_of(event.status, text)
        return any_news

    @property
    def finished(self) -> bool:
        return all(answer.finish_reason is not None for answer in self.answers)

    @property
    def n_output_tokens(self) -> int:
        return sum(answer.n_tokens for answer in self.answers)

    def output(self, with_metrics: bool, delta: bool = False) -> RequestOutput:
        """What has been read, in whole or (delta) since the last time."""
        stats = ffi.new("struct phi_request_stats *")
        lib.phi_request_get_stats(self.out[0], stats)
        start = self._queued_ts
        metrics = RequestStateStats(
            stats.n_output_tokens, self.arrival_time, start, start + stats.queue_s, start + stats.first_token_s,
            start + stats.end_s, stats.first_token_s, num_preemptions=stats.n_preemptions) if with_metrics else None
        outputs = [answer.output(delta) for answer in self.answers if not delta or answer.has_news]
        return RequestOutput(self.request_id, self.prompt.text, self.prompt.ids, self.prompt_reader.logprobs, outputs,
                             self.finished, metrics, num_cached_tokens=stats.n_cached_tokens)

    def cancel(self) -> None:
        """From any thread; the answers end with "abort" soon."""
        if self.out[0] != ffi.NULL:
            lib.phi_request_cancel(self.out[0])

    def release(self) -> None:
        pointer, self.out[0] = self.out[0], ffi.NULL
        lib.phi_request_release(pointer)


class Waker:
    """Waits for many requests at once; a context manager that leaves none of them behind."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.requests: dict[int, Request] = {}
        self._out = ffi.new("struct phi_waker **")
        self._news = ffi.new("struct phi_news[]", NEWS_AT_ONCE)
        self.has_reader = True
        engine.add(self)
        try:
            call(lib.phi_waker_create, self._out)
        except BaseException:
            engine.remove(self)
            raise
        self.fd = lib.phi_waker_fd(self._out[0])

    def __enter__(self) -> Waker:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def submit(self, number: int, request: Request, each_event: bool, priority: int = 0,
               salt: str | None = None) -> None:
        """Queues `request` under a number of the caller's. Raises ValidationError when it cannot run."""
        self.engine.check()
        kept: list[Any] = []
        ids = ids_of(request.prompt.ids, kept)
        sampling = to_c(request.params, len(request.prompt.ids), self.engine.model.info.vocab_size,
                        self.engine.info.max_model_len, self.engine.max_logprobs, kept)
        options = ffi.new("struct phi_request_options *", {"priority": priority})
        if salt:
            options.cache_salt = text_of(salt, kept)
        self.requests[number] = request  # before it runs: an interrupt may come at any time
        try:
            call(lib.phi_waker_submit, self._out[0], number, each_event, self.engine.pointer, ids,
                 len(request.prompt.ids), sampling, options, request.out)
        except Exception:
            del self.requests[number]
            raise

    def take(self) -> list[tuple[Request, int]]:
        """Requests with news, and their numbers; [] when there are none. Does not wait."""
        n = lib.phi_waker_take(self._out[0], self._news, NEWS_AT_ONCE)
        numbers = [self._news[i].id for i in range(n)]
        return [(self.requests[number], number) for number in numbers if number in self.requests]

    def wait(self) -> None:
        """Until something can be taken. A signal's handler runs here, and may raise."""
        poll = select.poll()
        poll.register(self.fd, select.POLLIN)
        poll.poll()

    def ended(self) -> Iterator[Request]:
        """All requests, read to their end, in the order of their ends."""
        left = len(self.requests)
        while left > 0:
            news = self.take()
            if not news:
                self.wait()
            for request, _ in news:  # each ends once
                request.read()
                left -= 1
                yield request

    def cancel(self) -> None:
        """Cancels every request that still runs. From any thread."""
        for request in list(self.requests.values()):
            request.cancel()

    def abandon(self) -> None:
        """For the engine's close: the reader is woken by the cancelled requests' ends and closes, or
        was interrupted when it did, and then it is done here."""
        self.cancel()
        if not self.has_reader:
            self.close()

    def close(self) -> None:
        """Cancels and frees the requests. May be interrupted, and is then completed by Engine.close."""
        if self._out[0] == ffi.NULL or os.getpid() != self.engine.pid:
            return
        self.has_reader = False
        self.cancel()
        while lib.phi_waker_n_live(self._out[0]) > 0:
            if lib.phi_waker_take(self._out[0], self._news, NEWS_AT_ONCE) == 0:
                self.wait()
        for request in self.requests.values():
            request.release()
        self.requests.clear()
        pointer, self._out[0] = self._out[0], ffi.NULL
        lib.phi_waker_destroy(pointer)
        self.engine.remove(self)
