"""SamplingParams and BeamSearchParams: vLLM's names, order, defaults and checks."""
from __future__ import annotations

import math
import warnings
from enum import IntEnum

from ._record import Record
from .exceptions import ValidationError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

LEAST_TEMPERATURE = 0.01  # below it, but not 0, is taken as this
GREEDY_BELOW = 1e-5
MOST_ANSWERS = 16384
_INT_MAX = 2**31 - 1

# vLLM's, and refused here: they are attributes too, since scripts read them.
_UNSUPPORTED = ("structured_outputs", "logprob_token_ids", "flat_logprobs", "thinking_token_budget",
                "repetition_detection", "prompt_logprob_token_ids", "prompt_logprob_start",
                "trace_decode_token_ids", "stream_interval")
_SHOWN = ("n", "presence_penalty", "frequency_penalty", "repetition_penalty", "temperature", "top_p", "top_k", "min_p",
          "seed", "stop", "stop_token_ids", "bad_words", "thinking_token_budget", "include_stop_str_in_output",
          "ignore_eos", "max_tokens", "min_tokens", "logprobs", "prompt_logprobs", "skip_special_tokens",
          "spaces_between_special_tokens", "structured_outputs", "extra_args")


class RequestOutputKind(IntEnum):
    """What each output of a stream holds."""

    CUMULATIVE = 0  # all that there is so far
    DELTA = 1  # what is new
    FINAL_ONLY = 2  # one output, when all is there


class SamplingParams:
    """How an answer is sampled and when it ends. All arguments may be given by name or in this order.

    n: answers, 1 to 16384; more than one needs temperature > 0.
    presence_penalty, frequency_penalty: [-2, 2], over the answer; repetition_penalty: > 0, over
    prompt and answer.
    temperature: 0 is greedy. top_p: (0, 1]. top_k: 0 or -1 is off. min_p: [0, 1].
    seed: the answer is then a function of prompt, parameters and seed alone; None or -1: the
    LLM's seed counts, and the number of the request.
    stop: one or several strings, not in the text unless include_stop_str_in_output.
    stop_token_ids: ids, in token_ids but not in the text. ignore_eos: the model's own end is none.
    max_tokens: None is as many as the context holds. min_tokens: no end before.
    logprobs, prompt_logprobs: the k best at each position, -1 is the whole vocabulary (the LLM's
    max_logprobs bounds it).
    detokenize: False leaves `text` empty. skip_special_tokens: their text is left out.
    logit_bias: {token id: -100 .. 100}. allowed_token_ids: nothing else is sampled.
    bad_words: words that do not occur. skip_reading_prefix_cache: the prompt is computed afresh.
    output_kind: of AsyncLLM's streams.
    spaces_between_special_tokens and extra_args are accepted and without effect.

    Raises TypeError for a value of a wrong type, ValidationError (a ValueError) for one out of
    range, and for what is not supported: structured_outputs, flat_logprobs, logprob_token_ids,
    prompt_logprob_token_ids, prompt_logprob_start, thinking_token_budget, repetition_detection,
    trace_decode_token_ids, stream_interval. What depends on the model (ids in the vocabulary,
    lengths, the bound of logprobs) is checked when a prompt is submitted.
    """

    def __init__(
        self,
        n: int = 1,
        presence_penalty: float = 0.0,
        frequency_penalty: float = 0.0,
        repetition_penalty: float = 1.0,
        temperature: float = 1.0,
        top_p: float = 1.0,
        top_k: int = 0,
        min_p: float = 0.0,
        seed: int | None = None,
        stop: str | Sequence[str] | None = None,
        stop_token_ids: Sequence[int] | None = None,
        ignore_eos: bool = False,
        max_tokens: int | None = 16,
        min_tokens: int = 0,
        logprobs: int | None = None,
        prompt_logprobs: int | None = None,
        logprob_token_ids: Sequence[int] | None = None,
        flat_logprobs: bool = False,
        detokenize: bool = True,
        skip_special_tokens: bool = True,
        spaces_between_special_tokens: bool = True,
        include_stop_str_in_output: bool = False,
        output_kind: RequestOutputKind | int = RequestOutputKind.CUMULATIVE,
        skip_clone: bool = False,
        structured_outputs: Any = None,
        logit_bias: dict[int, float] | None = None,
        allowed_token_ids: Sequence[int] | None = None,
        extra_args: dict[str, Any] | None = None,
        bad_words: Sequence[str] | None = None,
        skip_reading_prefix_cache: bool | None = None,
        thinking_token_budget: int | None = None,
        repetition_detection: Any = None,
        prompt_logprob_token_ids: Sequence[int] | None = None,
        prompt_logprob_start: int | None = None,
        trace_decode_token_ids: Sequence[int] | None = None,
        stream_interval: int | None = None,
    ) -> None:
        given = locals()
        for name in _UNSUPPORTED:
            setattr(self, name, given[name])
        self.skip_clone = skip_clone
        self.n = n
        self.presence_penalty = presence_penalty
        self.frequency_penalty = frequency_penalty
        self.repetition_penalty = repetition_penalty
        self.temperature = temperature
        self.top_p = top_p
        self.top_k = top_k
        self.min_p = min_p
        self.seed = None if seed == -1 else seed
        self.stop = [stop] if isinstance(stop, str) else _listed("stop", stop)
        self.stop_token_ids = _listed("stop_token_ids", stop_token_ids)
        self.ignore_eos = ignore_eos
        self.max_tokens = max_tokens
        self.min_tokens = min_tokens
        self.logprobs = 1 if logprobs is True else logprobs
        self.prompt_logprobs = 1 if prompt_logprobs is True else prompt_logprobs
        self.detokenize = detokenize
        self.skip_special_tokens = skip_special_tokens
        self.spaces_between_special_tokens = spaces_between_special_tokens
        self.include_stop_str_in_output = include_stop_str_in_output
        self.output_kind = RequestOutputKind(output_kind)
        self.logit_bias = _bias(logit_bias)
        self.allowed_token_ids = None if allowed_token_ids is None else list(allowed_token_ids)
        self.extra_args = extra_args
        self.bad_words = _listed("bad_words", bad_words)
        self.skip_reading_prefix_cache = (prompt_logprobs is not None if skip_reading_prefix_cache is None
                                          else skip_reading_prefix_cache)
        self.check()
        self._settle_temperature()

    @classmethod
    def from_optional(cls, **arguments: Any) -> SamplingParams:
        """As the constructor, but None stands for a default; keys of logit_bias may be digits."""
        kept = {k: v for k, v in arguments.items() if v is not None or k == "max_tokens"}
        return cls(**kept)

    def clone(self) -> SamplingParams:
        """A copy whose lists are its own."""
        copy = object.__new__(type(self))
        copy.__dict__ = {k: v.copy() if isinstance(v, (list, dict)) else v for k, v in self.__dict__.items()}
        return copy

    def _settle_temperature(self) -> None:
        if GREEDY_BELOW <= self.temperature < LEAST_TEMPERATURE:
            warnings.warn(f"temperature {self.temperature} is taken as {LEAST_TEMPERATURE}", stacklevel=3)
            self.temperature = LEAST_TEMPERATURE
        if self.temperature < GREEDY_BELOW:
            self.temperature, self.top_p, self.top_k, self.min_p = 0.0, 1.0, 0, 0.0

    def check(self) -> None:
        """Raises what the constructor raises; for fields that were set afterwards."""
        for name in _UNSUPPORTED:
            if getattr(self, name):
                raise ValidationError(f"{name} is not supported by phidelity", parameter=name,
                                      value=getattr(self, name))
        for name in ("presence_penalty", "frequency_penalty"):
            _number(self, name, lambda v: -2 <= v <= 2, "must be in [-2, 2]")
        _number(self, "repetition_penalty", lambda v: v > 0 and math.isfinite(v), "must be greater than zero")
        _number(self, "temperature", lambda v: v >= 0 and math.isfinite(v), "must be non-negative and finite")
        _number(self, "top_p", lambda v: 0 < v <= 1, "must be in (0, 1]")
        _number(self, "min_p", lambda v: 0 <= v <= 1, "must be in [0, 1]")
        _integer(self, "top_k", -1, _INT_MAX, "must be 0 (disable), or at least 1")
        if not hasattr(self.n, "__index__"):  # the only one whose type is a ValueError in vLLM
            raise ValidationError(f"n must be an int, but is of type {type(self.n)}", parameter="n", value=self.n)
        _integer(self, "n", 1, MOST_ANSWERS, f"must be at least 1 and at most {MOST_ANSWERS}")
        _integer(self, "max_tokens", 1, None, "must be at least 1", optional=True)
        most = _INT_MAX if self.max_tokens is None else self.max_tokens
        _integer(self, "min_tokens", 0, most, f"must be at least 0 and at most max_tokens={self.max_tokens}")
        _integer(self, "seed", -(2**63), 2**63 - 1, "must fit in 64 bits", optional=True)
        for name in ("logprobs", "prompt_logprobs"):
            _integer(self, name, -1, _INT_MAX, "must be non-negative or -1", optional=True)
        self._check_lists()
        if self.n > 1 and self.temperature < GREEDY_BELOW:
            raise ValidationError(f"n must be 1 when using greedy sampling, got {self.n}.", parameter="n",
                                  value=self.n)

    def _check_lists(self) -> None:
        for name, kind, what in (("stop", str, "strings"), ("bad_words", str, "strings"),
                                 ("stop_token_ids", int, "integers"), ("allowed_token_ids", int, "integers")):
            values = getattr(self, name)
            if values is not None and not all(isinstance(v, kind) for v in values):
                raise ValidationError(f"{name} must contain only {what}, got {values}.", parameter=name, value=values)
            if kind is str and "" in values:
                raise ValidationError(f"{name} cannot contain an empty string.", parameter=name, value=values)
        if self.allowed_token_ids is not None and not self.allowed_token_ids:
            raise ValidationError("allowed_token_ids is not None and empty!", parameter="allowed_token_ids", value=[])
        if self.stop and not self.detokenize:
            raise ValidationError("stop strings need the text: leave detokenize at True", parameter="stop",
                                  value=self.stop)

    def __eq__(self, other: object) -> bool:
        return self.__dict__ == other.__dict__ if isinstance(other, SamplingParams) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        """As vLLM writes it, with what it leaves out."""
        return f"SamplingParams({', '.join(f'{name}={getattr(self, name)}' for name in _SHOWN)})"


class BeamSearchParams(Record):
    """How LLM.beam_search searches.

    beam_width: sequences that go on after each token, and answers. max_tokens: of an answer. ignore_eos: an end token
    is one like others; else each of the checkpoint's end tokens ends a sequence. length_penalty: sequences are
    compared by their sum of logprobs / (tokens of prompt and answer) ** length_penalty. temperature: at 0 a step looks
    at the 2 * beam_width likeliest tokens after each sequence, above it at one sampled token more.
    include_stop_str_in_output has no effect, as in vLLM's LLM: the end token is in tokens and text.

    Raises as SamplingParams; structured_outputs are not supported.
    """

    def __init__(self, beam_width: int, max_tokens: int, ignore_eos: bool = False, temperature: float = 0.0,
                 length_penalty: float = 1.0, include_stop_str_in_output: bool = False,
                 structured_outputs: None = None) -> None:
        self.beam_width = beam_width
        self.max_tokens = max_tokens
        self.ignore_eos = ignore_eos
        self.temperature = temperature
        self.length_penalty = length_penalty
        self.include_stop_str_in_output = include_stop_str_in_output
        self.structured_outputs = structured_outputs
        if structured_outputs:
            raise ValidationError("structured_outputs is not supported by phidelity", parameter="structured_outputs",
                                  value=structured_outputs)
        _integer(self, "beam_width", 1, _INT_MAX // 2, "must be at least 1")
        _integer(self, "max_tokens", 1, None, "must be at least 1")
        _number(self, "temperature", lambda v: v >= 0 and math.isfinite(v), "must be non-negative and finite")
        _number(self, "length_penalty", math.isfinite, "must be finite")


def _listed(name: str, values: Sequence[Any] | None) -> list[Any]:
    if values is None:
        return []
    if isinstance(values, (str, bytes)) or not hasattr(values, "__iter__"):
        raise TypeError(f"{name} must be a list, got {type(values).__name__}")
    return list(values)


def _bias(bias: dict[Any, float] | None) -> dict[int, float] | None:
    if bias is None:
        return None
    if not isinstance(bias, dict):
        raise TypeError(f"logit_bias must be a dict, got {type(bias).__name__}")
    try:
        return {int(token): min(100.0, max(-100.0, value)) for token, value in bias.items()}
    except ValueError:
        raise ValidationError(f"logit_bias has keys that are no token ids: {list(bias)}", parameter="logit_bias",
                              value=bias) from None


def _number(params: SamplingParams | BeamSearchParams, name: str, is_good: Any, rule: str) -> None:
    value = getattr(params, name)
    if isinstance(value, bool) or not (hasattr(value, "__float__") or hasattr(value, "__index__")):
        raise TypeError(f"{name} must be a number, got {type(value).__name__}")
    if not is_good(value):  # which a NaN never is
        raise ValidationError(f"{name} {rule}, got {value}.", parameter=name, value=value)


def _integer(params: SamplingParams | BeamSearchParams, name: str, least: int, most: int | None, rule: str,
             optional: bool = False) -> None:
    value = getattr(params, name)
    if value is None and optional:
        return
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name} must be an integer, got {type(value).__name__}")
    if value < least or (most is not None and value > most):
        raise ValidationError(f"{name} {rule}, got {value}.", parameter=name, value=value)
