"""SamplingParams to and from struct phi_sampling."""
from __future__ import annotations

from ._library import ffi, ids_of, lib, text_of
from .exceptions import ValidationError
from .sampling_params import SamplingParams

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

# Fields with the same name and meaning on both sides.
_SAME = ("n", "temperature", "top_p", "top_k", "min_p", "repetition_penalty", "presence_penalty",
         "frequency_penalty", "include_stop_str_in_output", "ignore_eos", "skip_special_tokens")


def _lengths(params: SamplingParams, n_prompt: int, max_model_len: int) -> tuple[int, int]:
    """max_tokens and min_tokens of the library. As vLLM offline (not its server), an answer that
    would outgrow the context ends there; a prompt that leaves no room is the engine's to refuse."""
    room = max(max_model_len - n_prompt, 1)
    max_tokens = room if params.max_tokens is None else min(params.max_tokens, room)
    return max_tokens, min(params.min_tokens, max_tokens)


def _count(params: SamplingParams, name: str, vocab_size: int, max_logprobs: int) -> int:
    """logprobs or prompt_logprobs: None is -1 there, and -1 the whole vocabulary."""
    asked = getattr(params, name)
    if asked is None:
        return -1
    wanted = vocab_size if asked == -1 else asked
    if max_logprobs != -1 and wanted > max_logprobs:
        raise ValidationError(f"Requested {name} of {wanted}, which is greater than max allowed: {max_logprobs}",
                              parameter=name, value=asked)
    return min(wanted, vocab_size)


def _texts(values: Sequence[str], kept: list[Any]) -> Any:
    array = ffi.new("struct phi_text[]", [text_of(v, kept) for v in values])
    kept.append(array)
    return array


def _set_lists(s: Any, params: SamplingParams, kept: list[Any]) -> None:
    if params.stop:
        s.stop, s.n_stop = _texts(params.stop, kept), len(params.stop)
    if params.bad_words:
        s.bad_words, s.n_bad_words = _texts(params.bad_words, kept), len(params.bad_words)
    if params.stop_token_ids:
        s.stop_token_ids = ids_of(params.stop_token_ids, kept, "stop_token_ids: token id")
        s.n_stop_token_ids = len(params.stop_token_ids)
    if params.allowed_token_ids:
        s.allowed_token_ids = ids_of(params.allowed_token_ids, kept, "allowed_token_ids: token id")
        s.n_allowed_token_ids = len(params.allowed_token_ids)
    if params.logit_bias:
        tokens = ids_of(list(params.logit_bias), kept, "logit_bias: token id")
        biases = params.logit_bias.values()
        array = ffi.new("struct phi_logit_bias[]", list(zip(tokens, biases)))
        kept.append(array)
        s.logit_bias, s.n_logit_bias = array, len(biases)


def to_c(params: SamplingParams, n_prompt: int, vocab_size: int, max_model_len: int, max_logprobs: int,
         kept: list[Any]) -> Any:
    """A struct phi_sampling; what it points to lives as long as `kept`. Raises ValidationError."""
    params.check()
    s = ffi.new("struct phi_sampling *")
    lib.phi_sampling_init(s)
    for name in _SAME:
        setattr(s, name, getattr(params, name))
    s.max_tokens, s.min_tokens = _lengths(params, n_prompt, max_model_len)
    if params.seed is not None:
        s.has_seed, s.seed = True, params.seed
    s.logprobs = _count(params, "logprobs", vocab_size, max_logprobs)
    s.prompt_logprobs = _count(params, "prompt_logprobs", vocab_size, max_logprobs)
    _set_lists(s, params, kept)
    return s


def defaults_of(model: Any) -> SamplingParams:
    """vLLM's defaults, with the checkpoint's generation_config.json over them."""
    s = ffi.new("struct phi_sampling *")
    lib.phi_sampling_init_from_model(s, model)
    names = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
    return SamplingParams(max_tokens=s.max_tokens or None, **{name: getattr(s, name) for name in names})
