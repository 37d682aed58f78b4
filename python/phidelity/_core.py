"""What LLM and AsyncLLM have in common: the model, the engine, and the way from a prompt to a request."""
from __future__ import annotations

import itertools
import os

from ._sampling import defaults_of
from .engine import Engine, Request, Waker
from .engine_args import (dtype_name, dtype_of, find_checkpoint, load_strategy_of, policy_of, quantization_name,
                          quantization_of, sort_out)
from .exceptions import ValidationError
from .inputs import Prompt, TokenizedPrompt
from .metrics import Metric, read_metrics
from .model import Model
from .model_config import ModelConfig
from .sampling_params import SamplingParams
from .tokenizer import Tokenizer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LOAD_FORMATS = ("auto", "hf", "safetensors", "dummy")
MAX_NUM_SEQS, MAX_LOGPROBS = 128, 20


def _whole(name: str, value: Any, least: int = 0) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name} must be an integer, got {type(value).__name__}")
    if value < least or value >= 2**63:
        raise ValidationError(f"{name} must be at least {least}, got {value}", parameter=name, value=value)
    return int(value)


class Core:
    """`caller` is the class that arguments are checked for; the arguments are those of LLM."""

    def __init__(self, caller: str, model: str, *, tokenizer: str | None = None, chat_template: str | None = None,
                 dtype: Any = "auto", load_format: str = "auto", seed: int | None = 0,
                 max_model_len: int | None = None, max_num_seqs: int | None = None,
                 max_num_batched_tokens: int | None = None, block_size: int | None = None,
                 gpu_memory_utilization: float | None = None, kv_cache_memory_bytes: int | None = None,
                 kv_cache_dtype: Any = "auto", enable_prefix_caching: bool | None = None,
                 scheduling_policy: str = "fcfs", disable_sliding_window: bool = False,
                 max_logprobs: int = MAX_LOGPROBS, generation_config: str = "auto",
                 override_generation_config: dict[str, Any] | None = None,
                 served_model_name: str | list[str] | None = None, disable_log_stats: bool = True,
                 quantization: str | None = None, quant_group_size: int = 0, quantize_lm_head: bool = True,
                 safetensors_load_strategy: str | None = None, threads: int = 0, revision: str | None = None,
                 **unknown: Any) -> None:
        sort_out(unknown, caller)
        if load_format not in LOAD_FORMATS:
            raise ValidationError(f"load_format must be one of {', '.join(LOAD_FORMATS)}, got {load_format!r}",
                                  parameter="load_format", value=load_format)
        if not isinstance(model, (str, os.PathLike)):
            raise TypeError(f"model must be the path of a checkpoint folder, got {type(model).__name__}")
        seed = _whole("seed", seed or 0)
        settings: dict[str, Any] = {
            "max_num_seqs": MAX_NUM_SEQS if max_num_seqs is None else max_num_seqs,
            "max_num_batched_tokens": max_num_batched_tokens, "block_size": block_size,
            "kv_bytes": kv_cache_memory_bytes,
            "max_model_len": None if max_model_len in ("auto", -1) else max_model_len,
        }
        settings = {name: _whole(name, value) for name, value in settings.items() if value is not None}
        settings.update(seed=seed, kv_dtype=dtype_of("kv_cache_dtype", kv_cache_dtype),
                        scheduling_policy=policy_of(scheduling_policy))
        if gpu_memory_utilization is not None:
            settings["memory_utilization"] = gpu_memory_utilization
        if enable_prefix_caching is not None:
            settings["enable_prefix_caching"] = bool(enable_prefix_caching)
        self.model_name = _name_of(model, served_model_name)
        self.disable_log_stats = disable_log_stats
        self.model = Model(find_checkpoint(os.fspath(model), revision), tokenizer, chat_template,
                           dtype=dtype_of("dtype", dtype), dummy_weights=load_format == "dummy", seed=seed,
                           quantization=quantization_of(quantization), keep_lm_head=not quantize_lm_head,
                           quant_group_size=_whole("quant_group_size", quant_group_size),
                           load_strategy=load_strategy_of(safetensors_load_strategy),
                           n_threads=_whole("threads", threads))
        window = self.model.info.sliding_window
        if disable_sliding_window and window > 0:
            settings["max_model_len"] = min(settings.get("max_model_len", window), window)
        self.engine = Engine(self.model, **settings)
        self.engine.max_logprobs = max_logprobs
        self.tokenizer = Tokenizer(self.model)
        info = self.model.info
        self.end_ids = frozenset([*info.stop_ids[0:info.n_stop_ids], *([info.eos_id] if info.eos_id >= 0 else [])])
        self.config = ModelConfig(self.model.path, self.model.tokenizer_path, self.model_name, dtype_name(info.dtype),
                                  quantization_name(info.quantization), seed, self.engine.info.max_model_len,
                                  max_logprobs, info.vocab_size)
        self.defaults = _defaults(self.model, generation_config, override_generation_config)
        self._numbers = itertools.count()
        self._cache_epoch = 0

    def encode(self, prompt: Prompt, tokenization_kwargs: dict[str, Any] | None) -> TokenizedPrompt:
        """The same prompt with its ids. Raises TypeError for keyword arguments of no effect here."""
        kwargs = dict(tokenization_kwargs or {})
        add_special_tokens = kwargs.pop("add_special_tokens", True)
        keep = kwargs.pop("truncate_prompt_tokens", None)
        if kwargs.pop("truncation", False):
            keep = kwargs.pop("max_length", self.engine.info.max_model_len)
        kwargs.pop("max_length", None)
        if kwargs:
            raise TypeError(f"tokenization_kwargs: unknown {', '.join(kwargs)}")
        ids = prompt.ids
        if ids is None:
            ids = self.tokenizer.encode(prompt.text or "", add_special_tokens)
        if keep is not None:
            keep = self.engine.info.max_model_len if keep == -1 else _whole("truncate_prompt_tokens", keep)
            ids = self.tokenizer.truncate(ids, keep)
        if not ids:
            raise ValidationError("The decoder prompt cannot be empty", parameter="prompt", value=prompt.text)
        return TokenizedPrompt(prompt.text, ids, prompt.cache_salt)

    def request(self, prompt: TokenizedPrompt, params: SamplingParams, request_id: str | None = None) -> Request:
        """Not submitted yet."""
        return Request(self.tokenizer, request_id or str(next(self._numbers)), prompt, params)

    def waker(self) -> Waker:
        return Waker(self.engine)

    def submit(self, waker: Waker, number: int, request: Request, each_event: bool, priority: int) -> None:
        waker.submit(number, request, each_event, priority, self._salt(request))

    def _salt(self, request: Request) -> str | None:
        """Prompts share cached blocks only with those of the same salt. A prompt that is not to read the
        cache gets one that nobody else has; so does, for everybody, an emptied cache."""
        salt = request.prompt.cache_salt
        if request.params.skip_reading_prefix_cache and request.params.prompt_logprobs is None:
            return f"alone/{request.request_id}/{next(self._numbers)}"
        if self._cache_epoch > 0:
            return f"epoch/{self._cache_epoch}/{salt or ''}"
        return f"salt/{salt}" if salt else None

    def reset_prefix_cache(self) -> None:
        self.engine.check()
        self._cache_epoch += 1

    def close(self) -> None:
        self.engine.close()


class Facts:
    """What LLM, LLMEngine and AsyncLLM tell of what they have in common."""

    _core: Core

    @property
    def model_config(self) -> ModelConfig:
        """Facts of the model: max_model_len, dtype, get_vocab_size(), hf_config and others."""
        return self._core.config

    @property
    def tokenizer(self) -> Tokenizer:
        """get_tokenizer()."""
        return self._core.tokenizer

    def get_tokenizer(self) -> Tokenizer:
        """The tokenizer with encode, decode and apply_chat_template."""
        return self._core.tokenizer

    def get_default_sampling_params(self) -> SamplingParams:
        """vLLM's defaults with generation_config over them; a new object each time."""
        return self._core.defaults.clone()

    def get_metrics(self) -> list[Metric]:
        """What the engine does now and has done; names as in /metrics of `phidelity serve`."""
        return read_metrics(self._core.engine.stats(), self._core.model_name)


def _name_of(model: Any, served_model_name: str | list[str] | None) -> str:
    if isinstance(served_model_name, (list, tuple)):
        served_model_name = served_model_name[0] if served_model_name else None
    return served_model_name or os.fspath(model)


def _defaults(model: Model, generation_config: str, override: dict[str, Any] | None) -> SamplingParams:
    """As vLLM: "auto" is the checkpoint's generation_config.json, "vllm" none, else a folder's."""
    if generation_config == "auto":
        defaults = defaults_of(model.pointer)
    else:
        defaults = SamplingParams()
    given = dict(override or {})
    if generation_config not in ("auto", "vllm"):
        import json
        with open(os.path.join(generation_config, "generation_config.json"), encoding="utf-8") as file:
            given = {**json.load(file), **given}
    if "max_new_tokens" in given:
        given["max_tokens"] = given["max_new_tokens"]
    known = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "max_tokens")
    fields = {name: getattr(defaults, name) for name in known}
    fields.update((name, given[name]) for name in known if given.get(name) is not None)
    return SamplingParams(**fields)
