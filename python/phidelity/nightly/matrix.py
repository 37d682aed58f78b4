"""The matrix file: which cells there are, how each is judged and measured. docs/NIGHTLY.md describes the keys."""
from __future__ import annotations

import os

from ..plain_yaml import YamlError, read_yaml
from .cells import Cell, CellModel
from .schema import (MatrixError, fields, flag, list_of, mapping_of, matching, number, one_of, text, whole, whole_or)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

STEPS = ("check", "start", "align", "eval", "latency", "startup")
DTYPES = ("auto", "float32", "bfloat16", "float16")

_DTYPES = list_of(one_of(*DTYPES))
_QUANTIZATION = matching(r"none|w8a8|w4a8(-g[1-9]\d*)?", "none, w8a8, w4a8, or w4a8-g32 with the group's size")
_CONTEXTS = list_of(whole_or("auto", 16))
_FLAGS = list_of(matching(r"--[a-z].*", "an option, as --threads=2"))
_LIMITS = mapping_of(
    matching("|".join(DTYPES) + r"|w8a8|w4a8(-g[1-9]\d*)?", "a dtype or quantisation: " + ", ".join(DTYPES)
             + ", w8a8, w4a8, w4a8-g32"),
    fields({"min_top1": number(0, 100), "min_cosine": number(-1, 1), "max_kl": number(0, 1e9)}))
_SHARE = number(0, 1e6)

_SHARED = {
    "dtypes": _DTYPES, "quantizations": list_of(_QUANTIZATION), "contexts": _CONTEXTS, "flags": _FLAGS,
    "limits": _LIMITS,
}
_MODEL = {
    "path": text, "name": matching(r"[A-Za-z0-9][A-Za-z0-9._-]*", "letters, digits, '.', '_' and '-'"),
    "reference": text, "reference_prompts": text, "gate": text, **_SHARED,
}
_MODEL_FILES = ("reference", "reference_prompts", "gate")
_FILE = {
    "title": text, "models": list_of(fields(_MODEL, ["path"])), **_SHARED,
    "skip": list_of(text), "steps": list_of(one_of(*STEPS)), "time_limit_s": number(1, 1e6),
    "align": fields({"mode": one_of("both", "short", "long"), "judge": one_of("exact", "strict", "relaxed"),
                     "max_tokens": whole(1), "long_max_tokens": whole(1), "long_prompt_len": whole(1),
                     "prompts": text}),
    "eval": fields({"rtol": number(0, 1), "at_least": flag, "limit": number(0, 1e9), "concurrency": whole(1)}),
    "latency": fields({"input_len": whole_or("full", 1), "output_len": whole(2), "batch_size": whole(1),
                       "num_iters": whole(1), "num_iters_warmup": whole(0)}),
    "startup": fields({"input_len": whole(1), "num_iters_cold": whole(0), "num_iters_warmup": whole(0),
                       "num_iters_warm": whole(1)}),
    "changes": fields({"accuracy": _SHARE, "score": _SHARE, "speed": _SHARE, "memory": _SHARE}),
}

# What holds for a key that the file leaves out; in `latency` and `startup` the program's own defaults would
# take minutes a cell.
_DEFAULTS: dict[str, Any] = {
    "title": "Nightly", "dtypes": ["auto"], "quantizations": ["none"], "contexts": ["auto"], "flags": [],
    "limits": {}, "skip": [], "steps": list(STEPS), "time_limit_s": 600, "align": {}, "eval": {},
}
_DEFAULT_PARTS: dict[str, dict[str, float]] = {
    "latency": {"input_len": 128, "output_len": 64, "batch_size": 1, "num_iters": 5, "num_iters_warmup": 1},
    "startup": {"num_iters_cold": 1, "num_iters_warmup": 1, "num_iters_warm": 3},
    "changes": {"accuracy": 0.01, "score": 0.01, "speed": 0.15, "memory": 0.1},
}


class Matrix:
    """The file as it is meant: defaults filled in, paths made from the file's folder.

    path: of the file. title, steps, time_limit_s, align, eval, latency, startup, changes: its keys.
    cells: of all models, in the file's order, without those that `skip` names.
    """

    def __init__(self, path: str, values: dict[str, Any]) -> None:
        values = {**_DEFAULTS, **values}
        for key, part in _DEFAULT_PARTS.items():
            values[key] = {**part, **values.get(key, {})}
        self.path = path
        self.title: str = values["title"]
        self.steps: list[str] = [name for name in STEPS if name in values["steps"]]
        self.time_limit_s: float = values["time_limit_s"]
        self.align: dict[str, Any] = values["align"]
        self.eval: dict[str, Any] = values["eval"]
        self.latency: dict[str, Any] = values["latency"]
        self.startup: dict[str, Any] = values["startup"]
        self.changes: dict[str, float] = values["changes"]
        if "prompts" in self.align:
            self.align = {**self.align, "prompts": self._file(self.align["prompts"], "align.prompts")}
        self.cells: list[Cell] = []
        for i, model in enumerate(values["models"]):
            self._add_model(f"models[{i}]", values, model)
        self.cells = [cell for cell in self.cells if not any(cell.matches(p) for p in values["skip"])]
        if not self.cells:
            raise MatrixError("skip: it leaves no cell")

    def _file(self, path: str, where: str) -> str:
        found = os.path.normpath(os.path.join(os.path.dirname(self.path), os.path.expanduser(path)))
        if not os.path.isfile(found):
            raise MatrixError(f"{where}: there is no file {found}")
        return found

    def _add_model(self, where: str, values: dict[str, Any], own: dict[str, Any]) -> None:
        folder = os.path.normpath(os.path.join(os.path.dirname(self.path), os.path.expanduser(own["path"])))
        if not os.path.isfile(os.path.join(folder, "config.json")):
            raise MatrixError(f"{where}.path: {folder} is no checkpoint folder: it holds no config.json")
        files = {key: self._file(own[key], f"{where}.{key}") for key in _MODEL_FILES if key in own}
        model = CellModel(
            name=own.get("name") or os.path.basename(os.path.abspath(folder)), path=folder,
            reference=files.get("reference"), reference_prompts=files.get("reference_prompts"), gate=files.get("gate"),
            flags=(*values["flags"], *own.get("flags", [])))
        if any(cell.model.name == model.name for cell in self.cells):
            raise MatrixError(f"{where}: another model is named '{model.name}' too: give it a name of its own")
        limits = {**values["limits"], **own.get("limits", {})}
        for dtype in own.get("dtypes", values["dtypes"]):
            for quantization in own.get("quantizations", values["quantizations"]):
                for context in own.get("contexts", values["contexts"]):
                    found = self._limits(where, limits, dtype, quantization)
                    self.cells.append(Cell(model, dtype, quantization, context, found))
                    self._check_lengths(context)

    def _limits(self, where: str, limits: dict[str, Any], dtype: str, quantization: str) -> dict[str, float]:
        """What check-accuracy is to ask for; {}: its own defaults, which are meant for unquantised weights."""
        if quantization == "none":
            return dict(limits.get(dtype, {}))
        for name in (quantization, quantization.partition("-")[0]):
            if name in limits:
                return dict(limits[name])
        if "check" in self.steps:
            raise MatrixError(f"limits: '{quantization}' is missing: how far quantised weights may be from the "
                              f"reference must be stated, as {quantization}: {{min_top1: 95, min_cosine: 0.99, "
                              f"max_kl: 0.05}} (for {where})")
        return {}

    def _check_lengths(self, context: Any) -> None:
        asked, answer = self.latency["input_len"], self.latency["output_len"]
        if context == "auto" and asked == "full":
            raise MatrixError("latency.input_len: 'full' needs numbers as contexts")
        least = answer + (1 if asked == "full" else asked)
        if context != "auto" and "latency" in self.steps and least > context:
            raise MatrixError(f"latency: {least} tokens of prompt and answer do not fit into the context of {context}")


def read_matrix(path: str) -> Matrix:
    """The matrix of a file. Raises OSError, and MatrixError with file and key for what it may not say."""
    try:
        return Matrix(path, fields(_FILE, ["models"])(read_yaml(path), ""))
    except YamlError as error:
        raise MatrixError(str(error)) from None
    except MatrixError as error:
        raise MatrixError(f"{path}: {error}") from None
