"""EngineArgs from a command line: the flags are vLLM's, the fields with dashes."""
from __future__ import annotations

import argparse
import inspect
import json

from ._core import LOAD_FORMATS, Core
from .engine_args import DTYPES, INERT, LOAD_STRATEGIES, ONLY, POLICIES, QUANTIZATIONS
from .exceptions import ValidationError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_UNITS = {"k": 10**3, "m": 10**6, "g": 10**9, "K": 2**10, "M": 2**20, "G": 2**30}


def _count(text: str) -> int:
    """"4096", "4K" (of 1,024) or "32.5k" (of 1,000)."""
    unit = _UNITS.get(text[-1:], 1)
    value = float(text[:-1]) * unit if unit > 1 else int(text)
    if value != int(value):
        raise ValueError
    return int(value)


def _length(text: str) -> int | str:
    return text if text == "auto" else _count(text)


def _value(text: str) -> Any:
    """What stands in JSON for a number, an object, true or null; else the text."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _json(text: str) -> Any:
    return json.loads(text)


# What argparse says about a wrong value: "invalid <name> value".
_count.__name__, _length.__name__, _json.__name__ = "count", "length (a count, or auto)", "JSON"

FLAG: dict[str, Any] = {"action": argparse.BooleanOptionalAction}
# How argparse reads each field of LLM that does something.
FIELDS: dict[str, dict[str, Any]] = {
    "model": {"metavar": "FOLDER", "help": "the checkpoint, or org/name when Hugging Face's cache has it"},
    "tokenizer": {"metavar": "FOLDER", "help": "with another tokenizer and chat template"},
    "chat_template": {"metavar": "FILE", "help": "in place of the checkpoint's; or the template's text"},
    "dtype": {"choices": list(DTYPES), "help": "of weights and arithmetic"},
    "load_format": {"choices": LOAD_FORMATS, "help": "dummy: weights are made up"},
    "seed": {"type": int, "metavar": "N", "help": "of requests that bring none"},
    "max_model_len": {"type": _length, "metavar": "N", "help": "tokens of prompt and answer together"},
    "max_num_seqs": {"type": _count, "metavar": "N", "help": "answers that decode together"},
    "max_num_batched_tokens": {"type": _count, "metavar": "N", "help": "tokens of one step"},
    "block_size": {"type": _count, "metavar": "N", "help": "tokens of a block of the KV cache"},
    "gpu_memory_utilization": {"type": float, "metavar": "X",
                               "help": "the share of the machine's memory that the process may take"},
    "kv_cache_memory_bytes": {"type": _count, "metavar": "N", "help": "the KV cache's size"},
    "kv_cache_dtype": {"choices": list(DTYPES), "help": "of keys and values"},
    "enable_prefix_caching": {**FLAG, "help": "prompts share what they begin with"},
    "scheduling_policy": {"choices": list(POLICIES), "help": "who comes first"},
    "disable_sliding_window": {**FLAG, "help": "contexts end at the window"},
    "max_logprobs": {"type": int, "metavar": "N", "help": "the most that a request may ask for; -1 is no bound"},
    "generation_config": {"metavar": "auto|vllm|FOLDER", "help": "where default sampling parameters come from"},
    "override_generation_config": {"type": _json, "metavar": "JSON", "help": "over those"},
    "served_model_name": {"nargs": "+", "metavar": "NAME", "help": "the model's name in metrics"},
    "disable_log_stats": {**FLAG, "help": "off fills RequestOutput.metrics"},
    "quantization": {"choices": [q for q in QUANTIZATIONS if q != "None"], "help": "linear layers become integers"},
    "quant_group_size": {"type": _count, "metavar": "N", "help": "inputs that share a scale"},
    "quantize_lm_head": {**FLAG, "help": "the output layer, too"},
    "safetensors_load_strategy": {"choices": list(LOAD_STRATEGIES), "help": "how weights come into memory"},
    "threads": {"type": _count, "metavar": "N", "help": "that compute; 0 is one for each physical core"},
    "revision": {"metavar": "NAME", "help": "of the model in Hugging Face's cache"},
}


SHORT = {"quantization": ["-q"], "tensor_parallel_size": ["-tp"], "pipeline_parallel_size": ["-pp"],
         "data_parallel_size": ["-dp"]}


def _names(field: str) -> list[str]:
    return ["--" + field.replace("_", "-"), *SHORT.get(field, ())]


def add_cli_args(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """As of EngineArgs."""
    group = parser.add_argument_group(
        "engine", "Those of vLLM's engine flags that are not listed are accepted, too: without effect, or only with the "
                  "value that changes no answer.")
    defaults = inspect.signature(Core).parameters
    for name, how in FIELDS.items():
        group.add_argument(*_names(name), default=None if name == "model" else defaults[name].default, **how)
    for name in sorted((INERT | ONLY.keys()) - FIELDS.keys()):
        group.add_argument(*_names(name), nargs="?", const=True, type=_value, default=ONLY.get(name, [None])[0],
                           help=argparse.SUPPRESS)
        if name in INERT:
            group.add_argument("--no-" + name.replace("_", "-"), dest=name, action="store_false", default=None,
                               help=argparse.SUPPRESS)
    return parser


def fields_of(args: argparse.Namespace) -> dict[str, Any]:
    """The fields of EngineArgs that a namespace has. Raises ValidationError when it names no model."""
    if getattr(args, "model", None) is None:
        raise ValidationError("a model is missing: --model FOLDER", parameter="model")
    others = (INERT | ONLY.keys()) - FIELDS.keys()
    return {name: value for name, value in vars(args).items()
            if name in FIELDS or (name in others and value is not None)}
