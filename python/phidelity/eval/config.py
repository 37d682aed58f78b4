"""A gate's file, in vllm-ascend's format: a model, how it is served, and tasks with the scores expected of them.

    model_name: "microsoft/Phi-4-mini-instruct"
    serve:
      dtype: auto
    tasks:
    - name: "gsm8k"
      metrics:
      - name: "exact_match,strict-match"
        value: 0.81
    num_fewshot: 5

Every key is checked: a misspelt one would make a gate that tests something else.
"""
from __future__ import annotations

import difflib
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..plain_yaml import read_yaml
from .gsm8k import MAX_TOKENS, STOP

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any, NoReturn


class ConfigError(ValueError):
    """What a gate's file may not say, as "file: key: what is wrong, and what is allowed"."""


@dataclass(frozen=True)
class Task:
    """name: lm-eval's. expected: {metric: value}, in the order of the file. file: questions in gsm8k's format that
    are asked without lm-eval, shots: solved examples for them (None: the same file)."""

    name: str
    expected: dict[str, float] = field(default_factory=dict)
    file: str | None = None
    shots: str | None = None


@dataclass(frozen=True)
class Config:
    """model: a checkpoint folder or "org/name". serve: settings by the names that LLM and `phidelity serve`
    share. ignored: keys of the file that have no effect here. The defaults are those of vllm-ascend's tests;
    num_fewshot None is the task's own (5 for files), limit a number of questions or, under 1, a share."""

    model: str
    tasks: list[Task]
    serve: dict[str, Any] = field(default_factory=dict)
    num_fewshot: int | None = None
    apply_chat_template: bool = True
    fewshot_as_multiturn: bool = True
    limit: int | float | None = None
    batch_size: int | str = "auto"
    gen_kwargs: dict[str, Any] = field(default_factory=dict)
    system_prompt: str | None = None
    ignored: list[str] = field(default_factory=list)


# Settings with an effect on answers or speed, by LLM's names; `phidelity serve` has them as flags.
SERVE = ("block_size", "dtype", "enable_prefix_caching", "generation_config", "kv_cache_dtype",
         "kv_cache_memory_bytes", "max_model_len", "max_num_batched_tokens", "max_num_seqs", "quant_group_size",
         "quantization", "quantize_lm_head", "revision", "seed", "threads", "tokenizer")
# About an accelerator, or without effect on what a Phi model answers.
SERVE_IGNORED = ("compilation_config", "data_parallel_size", "enable_expert_parallel", "enable_thinking",
                 "enforce_eager", "gpu_memory_utilization", "max_images", "pipeline_parallel_size",
                 "tensor_parallel_size", "trust_remote_code")
IGNORED = ("envs", "hardware")


# ---------------------------------------------------------------- kinds of values

def _is_number(x: Any) -> bool:
    return isinstance(x, (int, float)) and not isinstance(x, bool)


def _is_count(x: Any) -> bool:
    return isinstance(x, int) and not isinstance(x, bool) and x >= 0


TEXT = (lambda x: isinstance(x, str) and x != "", "a text")
NUMBER = (_is_number, "a number")
COUNT = (_is_count, "a whole number from 0 on")
FLAG = (lambda x: isinstance(x, bool), "true or false")
LIMIT = (lambda x: _is_number(x) and (0 < x < 1 or (isinstance(x, int) and x > 0)),
         "a number of questions, or a share of them between 0 and 1")
BATCH = (lambda x: x == "auto" or (_is_count(x) and x > 0), "'auto' or a whole number from 1 on")
MAPPING = (lambda x: isinstance(x, dict), "a mapping")
LIST = (lambda x: isinstance(x, list) and len(x) > 0, "a list of at least one")
SETTING = (lambda x: isinstance(x, (str, int, float, bool)), "a text, a number, true or false")

_TOP = {"model_name": TEXT, "model_type": TEXT, "serve": MAPPING, "tasks": LIST, "num_fewshot": COUNT,
        "apply_chat_template": FLAG, "fewshot_as_multiturn": FLAG, "limit": LIMIT, "batch_size": BATCH,
        "gen_kwargs": MAPPING, "system_prompt": TEXT, "hardware": TEXT, "envs": MAPPING}
_TASK = {"name": TEXT, "metrics": LIST, "file": TEXT, "shots": TEXT}
_METRIC = {"name": TEXT, "value": NUMBER}
_GEN = {"max_gen_toks": (lambda x: _is_count(x) and x > 0, "a whole number from 1 on"),
        "until": (lambda x: isinstance(x, (str, list)) and all(isinstance(t, str) and t for t in x) and len(x) > 0,
                  "a text or a list of texts"),
        "do_sample": (lambda x: x is False, "false: answers are greedy"),
        "temperature": (lambda x: _is_number(x) and x == 0, "0: answers are greedy")}


def near(name: object, known: Iterable[str]) -> str:
    """" (did you mean 'x'?)", or what there is."""
    known = sorted(known)
    close = difflib.get_close_matches(str(name), known, 1)
    return f" (did you mean '{close[0]}'?)" if close else f" (there are {', '.join(known)})"


class _File:
    """Checks the parts of one file; every complaint begins with its name."""

    def __init__(self, path: str) -> None:
        self.path = path

    def fail(self, key: str, what: str) -> NoReturn:
        raise ConfigError(f"{self.path}: {key}: {what}" if key else f"{self.path}: {what}")

    def check(self, where: str, found: Any, kinds: dict[str, tuple[Callable[[Any], bool], str]],
              needed: Iterable[str]) -> dict[str, Any]:
        """found, a mapping with no other keys than those of `kinds`, each of its kind."""
        if not isinstance(found, dict):
            self.fail(where, f"must be a mapping with {', '.join(needed)}")
        dot = f"{where}." if where else ""
        for key, value in found.items():
            if key not in kinds:
                self.fail(f"{dot}{key}", "no such key" + near(key, kinds))
            fits, allowed = kinds[key]
            if not fits(value):
                self.fail(f"{dot}{key}", f"must be {allowed}, not {value!r}")
        for key in needed:
            if key not in found:
                self.fail(f"{dot}{key}", "is missing")
        return found

    def task(self, where: str, found: Any) -> Task:
        self.check(where, found, _TASK, ["name", "metrics"])
        expected: dict[str, float] = {}
        for i, metric in enumerate(found["metrics"]):
            at = f"{where}.metrics[{i}]"
            self.check(at, metric, _METRIC, ["name", "value"])
            if metric["name"] in expected:
                self.fail(at, f"'{metric['name']}' stands here for the second time")
            expected[metric["name"]] = float(metric["value"])
        if "shots" in found and "file" not in found:
            self.fail(f"{where}.shots", "is for a task with a 'file'")
        return Task(found["name"], expected, self.beside(found.get("file")), self.beside(found.get("shots")))

    def beside(self, path: str | None) -> str | None:
        """A path of the file, which is relative to the file."""
        return None if path is None else os.path.join(os.path.dirname(self.path), path)

    def serve(self, found: dict[str, Any], ignored: list[str]) -> dict[str, Any]:
        self.check("serve", found, dict.fromkeys((*SERVE, *SERVE_IGNORED), SETTING), [])
        ignored += [f"serve.{key}" for key in found if key in SERVE_IGNORED]
        return {key: value for key, value in found.items() if key in SERVE}


def read_config(path: str) -> Config:
    """A gate's file. Raises OSError, YamlError for what is no plain YAML, ConfigError for the rest."""
    file = _File(path)
    found = read_yaml(path)
    if not isinstance(found, dict):
        file.fail("", "must be a mapping with model_name and tasks")
    found = {key: value for key, value in found.items() if value is not None}  # "limit: null"
    file.check("", found, _TOP, ["model_name", "tasks"])
    if found.get("model_type", "vllm") != "vllm":
        file.fail("model_type", f"must be vllm (a model that reads and writes text), not {found['model_type']!r}")
    tasks = [file.task(f"tasks[{i}]", task) for i, task in enumerate(found["tasks"])]
    names = [task.name for task in tasks]
    for i, name in enumerate(names):
        if name in names[:i]:
            file.fail(f"tasks[{i}].name", f"'{name}' stands here for the second time")
    ignored = [key for key in found if key in IGNORED]
    kept = {key: found[key] for key in ("num_fewshot", "apply_chat_template", "fewshot_as_multiturn", "limit",
                                        "batch_size", "gen_kwargs", "system_prompt") if key in found}
    return Config(found["model_name"], tasks, file.serve(found.get("serve", {}), ignored), ignored=ignored, **kept)


def greedy_settings(gen_kwargs: dict[str, Any]) -> tuple[int, tuple[str, ...]]:
    """(max_tokens, stop) of gen_kwargs for a task that is run here. Raises ConfigError."""
    _File("gen_kwargs").check("", gen_kwargs, _GEN, [])
    until = gen_kwargs.get("until", STOP)
    return gen_kwargs.get("max_gen_toks", MAX_TOKENS), (until,) if isinstance(until, str) else tuple(until)
