"""From the library's events to Python's values: texts, token ids, logprobs."""
from __future__ import annotations

import codecs
import struct

from ._library import ffi, lib
from .logprobs import Logprob
from .outputs import CompletionOutput

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .logprobs import LogprobsOnePosition, PromptLogprobs
    from .sampling_params import SamplingParams
    from .tokenizer import Tokenizer

_ENTRY = struct.Struct("=iif")  # struct phi_logprob: token, rank, logprob
_new_decoder = codecs.getincrementaldecoder("utf-8")


class Speller:
    """Texts of tokens in their place: a token that completes a character shows the whole of it, and
    one that only begins a character shows nothing yet."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._token_bytes = tokenizer.token_bytes
        self._decoder = _new_decoder(errors="replace")

    def take(self, token: int) -> tuple[str, bytes]:
        """The text of the next token, and the bytes that were undecided before it."""
        before = self._decoder.getstate()[0]
        return self._decoder.decode(self._token_bytes(token)), before

    def position(self, row: list[tuple[int, int, float]]) -> LogprobsOnePosition:
        """One row of phi_logprob: the token that is there, then others that might have been."""
        token, rank, logprob = row[0]
        text, before = self.take(token)
        found = {token: Logprob(logprob, rank, text)}
        for token, rank, logprob in row[1:]:
            if token >= 0 and token not in found:
                text = (before + self._token_bytes(token)).decode("utf-8", "replace")
                found[token] = Logprob(logprob, rank, text)
        return found


def _rows(pointer: Any, n_rows: int, n_columns: int) -> list[list[tuple[int, int, float]]]:
    """[n_rows, n_columns] of struct phi_logprob as tuples."""
    entries = list(_ENTRY.iter_unpack(ffi.buffer(pointer, n_rows * n_columns * _ENTRY.size)))
    return [entries[i:i + n_columns] for i in range(0, len(entries), n_columns)]


class PromptReader:
    """Reads a request's prompt logprobs, once."""

    def __init__(self, tokenizer: Tokenizer, params: SamplingParams) -> None:
        self.logprobs: PromptLogprobs | None = None
        self._speller = Speller(tokenizer) if params.prompt_logprobs is not None else None

    def read(self, request: Any, ids: list[int]) -> None:
        if self._speller is None or self.logprobs is not None:
            return
        n_columns = ffi.new("size_t *")
        pointer = lib.phi_request_prompt_logprobs(request, n_columns)
        if pointer == ffi.NULL:
            return
        rows = _rows(pointer, len(ids), n_columns[0])
        self._speller.take(ids[0])
        self.logprobs = [None, *map(self._speller.position, rows[1:])]


class AnswerReader:
    """Gathers one answer's events."""

    FINISH = {lib.PHI_FINISH_NONE: None, lib.PHI_FINISH_STOP: "stop", lib.PHI_FINISH_LENGTH: "length",
              lib.PHI_FINISH_ABORT: "abort", lib.PHI_FINISH_ERROR: "error"}

    def __init__(self, tokenizer: Tokenizer, index: int, params: SamplingParams) -> None:
        self.index = index
        self.finish_reason: str | None = None
        self.stop_reason: int | str | None = None
        self.has_news = False
        self._wants_text = params.detokenize
        self._texts: list[str] = []
        self._token_ids: list[int] = []
        self._speller = Speller(tokenizer) if params.logprobs is not None else None
        self._logprobs: list[LogprobsOnePosition] = []
        self._cumulative = 0.0
        self._n_given = (0, 0)  # texts, tokens of the outputs made so far

    @property
    def n_tokens(self) -> int:
        return len(self._token_ids)

    def read(self, event: Any) -> None:
        self.has_news = True
        if self._wants_text and event.text.n > 0:
            self._texts.append(ffi.buffer(event.text.data, event.text.n)[:].decode("utf-8", "replace"))
        if event.n_tokens > 0:
            self._token_ids += ffi.unpack(event.tokens, event.n_tokens)
        if self._speller is not None and event.n_tokens > 0:
            for row in _rows(event.logprobs, event.n_tokens, event.n_logprobs):
                self._cumulative += row[0][2]
                self._logprobs.append(self._speller.position(row))
        self.finish_reason = self.FINISH[event.finish]
        if event.stop_string.n > 0:
            self.stop_reason = ffi.buffer(event.stop_string.data, event.stop_string.n)[:].decode("utf-8", "replace")
        elif event.stop_token >= 0:
            self.stop_reason = event.stop_token

    def output(self, delta: bool) -> CompletionOutput:
        """What has been read, in whole or (delta) since the last time."""
        text_from, token_from = self._n_given if delta else (0, 0)
        self._n_given = len(self._texts), len(self._token_ids)
        self.has_news = False
        scored = self._speller is not None
        return CompletionOutput(self.index, "".join(self._texts[text_from:]), self._token_ids[token_from:],
                                self._cumulative if scored else None,
                                self._logprobs[token_from:] if scored else None,
                                finish_reason=self.finish_reason, stop_reason=self.stop_reason)
