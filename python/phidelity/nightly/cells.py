"""A cell: one model in one dtype, quantisation and context."""
from __future__ import annotations

import fnmatch
from dataclasses import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


@dataclass(frozen=True)
class CellModel:
    """What all cells of a model share. reference: a file for check-accuracy, None: one is to be made.
    gate: a file for phidelity.eval."""

    name: str
    path: str
    reference: str | None
    reference_prompts: str | None
    gate: str | None
    flags: tuple[str, ...]


@dataclass(frozen=True)
class Cell:
    """context: a number of tokens, or "auto". limits: of check-accuracy, by flag name; {}: its defaults."""

    model: CellModel
    dtype: str
    quantization: str
    context: Any
    limits: dict[str, float]

    @property
    def name(self) -> str:
        return f"{self.model.name}/{self.variant}"

    @property
    def variant(self) -> str:
        return f"{self.dtype}/{self.quantization}/{self.context}"

    def matches(self, pattern: str) -> bool:
        """Whether the pattern is found in the name: * and ? and [abc] as in a shell, upper and lower case differ."""
        return fnmatch.fnmatchcase(self.name, f"*{pattern}*")

    def model_flags(self) -> list[str]:
        """How weights and matrix inputs are held: what every command takes."""
        flags = [f"--dtype={self.dtype}"]
        if self.quantization != "none":
            scheme, _, group = self.quantization.partition("-g")
            flags.append(f"--quantization={scheme}")
            if group:
                flags.append(f"--quant-group-size={group}")
        return [*flags, *self.model.flags]

    def context_flags(self) -> list[str]:
        return [] if self.context == "auto" else [f"--max-model-len={self.context}"]
