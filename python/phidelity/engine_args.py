"""The keyword arguments of LLM: which of vLLM's do something here, which nothing, which are refused."""
from __future__ import annotations

import os
import warnings

from ._library import lib
from .exceptions import ValidationError

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from typing import Any

DTYPES = {"auto": "PHI_AUTO", "float32": "PHI_FLOAT32", "float": "PHI_FLOAT32", "bfloat16": "PHI_BFLOAT16",
           "float16": "PHI_FLOAT16", "half": "PHI_FLOAT16"}
QUANTIZATIONS = {"None": "PHI_UNQUANTIZED", "compressed-tensors": "PHI_UNQUANTIZED",  # config.json says what
                  "w8a8": "PHI_W8A8", "w4a8": "PHI_W4A8"}
_DTYPE_NAMES = ("float32", "bfloat16", "float16")
POLICIES = {"fcfs": "PHI_FCFS", "priority": "PHI_PRIORITY"}
LOAD_STRATEGIES = {"auto": "PHI_LOAD_AUTO", "lazy": "PHI_LOAD_LAZY", "prefetch": "PHI_LOAD_PREFETCH",
                    "eager": "PHI_LOAD_EAGER", "None": "PHI_LOAD_AUTO"}

# Where vLLM computes otherwise, and no answer depends on it.
INERT = frozenset("""
    additional_config aggregate_engine_logging all2all_backend allowed_local_media_path
    allowed_media_domains async_scheduling attention_backend attention_config block_size_override
    calculate_kv_scales code_revision compilation_config config_format cpu_offload_gb
    cpu_offload_params cudagraph_capture_sizes cudagraph_metrics data_parallel_backend
    disable_cascade_attn disable_chunked_mm_input disable_custom_all_reduce
    disable_hybrid_kv_cache_manager disable_mm_preprocessor_cache distributed_executor_backend
    download_dir enable_chunked_prefill enable_dbo enable_eplb enable_expert_parallel
    enable_layerwise_nvtx_tracing enable_return_routed_experts enforce_eager eplb_config
    fail_on_environ_validation hf_token ignore_patterns interleave_mm_strings kernel_config
    kv_cache_metrics kv_cache_metrics_sample kv_offloading_backend kv_offloading_size
    kv_sharing_fast_prefill limit_mm_per_prompt logprobs_mode long_prefill_token_threshold
    mamba_block_size mamba_cache_dtype mamba_ssm_cache_dtype max_cudagraph_capture_size
    max_long_partial_prefills max_num_partial_prefills max_parallel_loading_workers
    max_seq_len_to_capture media_io_kwargs mm_encoder_tp_mode mm_processor_cache_gb
    mm_processor_cache_type mm_processor_kwargs model_impl model_loader_extra_config moe_backend
    num_lookahead_slots numa_bind numa_bind_cpus numa_bind_nodes offload_backend offload_group_size
    offload_num_in_group offload_params offload_prefetch_step optimization_level
    override_attention_dtype performance_mode prefix_caching_hash_algo pt_load_map_location
    ray_workers_use_nsight revision scheduler_reserve_full_isl
    skip_mm_profiling skip_tokenizer_init stream_interval structured_outputs_config swap_space
    tokenizer_revision trust_remote_code use_tqdm_on_load use_v2_block_manager
""".split()) - {"block_size_override", "stream_interval", "logprobs_mode"}

# What would change answers, or what a caller counts on: only the values given here are fine.
ONLY: dict[str, tuple[Any, ...]] = {
    "tensor_parallel_size": (1,), "pipeline_parallel_size": (1,), "data_parallel_size": (1,),
    "decode_context_parallel_size": (1,), "prefill_context_parallel_size": (1,),
    "quantization_config": (None,), "runner": ("auto", "generate"),
    "convert": ("auto", "none"), "task": (None, "auto", "generate"), "tokenizer_mode": ("auto", "hf", "slow"),
    "hf_overrides": (None, {}), "hf_config_path": (None,), "enable_lora": (None, False), "lora_modules": (None, []),
    "speculative_config": (None,), "spec_model": (None,), "spec_method": (None,), "spec_tokens": (None,),
    "kv_transfer_config": (None,), "kv_events_config": (None,), "ec_transfer_config": (None,),
    "pooler_config": (None,), "override_pooler_config": (None,), "logits_processors": (None, []),
    "logits_processor_pattern": (None,), "worker_cls": (None, "auto"), "worker_extension_cls": (None, ""),
    "scheduler_cls": (None,), "enable_prompt_embeds": (None, False), "enable_mm_embeds": (None, False),
    "enable_sleep_mode": (None, False), "weight_transfer_config": (None,), "profiler_config": (None,),
    "rope_scaling": (None, {}), "rope_theta": (None,), "device": (None, "auto", "cpu"),
    "logprobs_mode": ("raw_logprobs",), "num_gpu_blocks_override": (None,), "reasoning_parser": (None, ""),
    "stream_interval": (1,),
}


class EngineArgs:
    """The arguments of LLM in one object: LLM.from_engine_args(args), LLM(**vars(args)).

    Also from a command line:

        parser = EngineArgs.add_cli_args(argparse.ArgumentParser())
        llm = LLM.from_engine_args(EngineArgs.from_cli_args(parser.parse_args()))
    """

    def __init__(self, model: str, **kwargs: Any) -> None:
        self.model = model
        self.__dict__.update(kwargs)

    @staticmethod
    def add_cli_args(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
        """Adds vLLM's engine flags (--max-model-len and others) to a parser, and returns it."""
        from .engine_cli import add_cli_args
        return add_cli_args(parser)

    @classmethod
    def from_cli_args(cls, args: argparse.Namespace) -> EngineArgs:
        """From what such a parser found; what it has beyond these fields is left alone. Raises ValidationError when
        no model was named."""
        from .engine_cli import fields_of
        return cls(**fields_of(args))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"


def one_of(name: str, value: Any, table: dict[str, str]) -> int:
    """The library's constant for a word; torch's dtypes are such words, too."""
    word = str(value).removeprefix("torch.")
    if word not in table:
        raise ValidationError(f"{name} must be one of {', '.join(table)}, got {value!r}", parameter=name, value=value)
    return getattr(lib, table[word])


def dtype_of(name: str, value: Any) -> int:
    """The phi_dtype for a name."""
    return one_of(name, value, DTYPES)


def dtype_name(dtype: int) -> str:
    """The name of a phi_dtype that is not PHI_AUTO."""
    return next(name for name in _DTYPE_NAMES if getattr(lib, DTYPES[name]) == dtype)


def quantization_of(value: Any) -> int:
    """The phi_quantization for a name."""
    return one_of("quantization", value, QUANTIZATIONS)


def quantization_name(quantization: int) -> str | None:
    """The name of a phi_quantization."""
    return {lib.PHI_W8A8: "w8a8", lib.PHI_W4A8: "w4a8"}.get(quantization)


def policy_of(value: Any) -> int:
    """The phi_policy for a name."""
    return one_of("scheduling_policy", value, POLICIES)


def load_strategy_of(value: Any) -> int:
    """The phi_load_strategy for a name."""
    return one_of("safetensors_load_strategy", value, LOAD_STRATEGIES)


def sort_out(unknown: dict[str, Any], caller: str) -> None:
    """Looks at keyword arguments that nothing here uses: one warning for those without effect,
    ValidationError for what is not supported, TypeError for what vLLM does not know either."""
    for name, value in unknown.items():
        if name in ONLY and value not in ONLY[name]:
            fine = ", ".join(map(repr, ONLY[name]))
            raise ValidationError(f"{name}={value!r} is not supported by phidelity (only {fine})", parameter=name,
                                  value=value)
        if name not in ONLY and name not in INERT:
            raise TypeError(f"{caller}() got an unexpected keyword argument {name!r}")
    inert = [name for name, value in unknown.items() if name in INERT and value not in (None, False)]
    if inert:
        warnings.warn(f"phidelity takes but does not need: {', '.join(inert)}", stacklevel=4)


def find_checkpoint(model: str, revision: str | None = None) -> str:
    """A folder as it is; "org/name" also where Hugging Face's cache has it (nothing is downloaded)."""
    if os.path.isdir(model) or model.count("/") != 1 or model.startswith(("/", ".", "~")):
        return model
    home = os.environ.get("HF_HOME") or os.path.expanduser("~/.cache/huggingface")
    hub = os.environ.get("HF_HUB_CACHE") or os.path.join(home, "hub")
    folder = os.path.join(hub, "models--" + model.replace("/", "--"))
    commit = revision or "main"
    try:
        with open(os.path.join(folder, "refs", commit), encoding="ascii") as reference:
            commit = reference.read().strip()
    except OSError:
        pass
    snapshot = os.path.join(folder, "snapshots", commit)
    return snapshot if os.path.isdir(snapshot) else model
