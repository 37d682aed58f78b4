"""The numbers of a cell: where they come from, how they are written, and which way is better."""
from __future__ import annotations

import math
from dataclasses import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def _seconds(x: float) -> str:
    return f"{1000 * x:.3g} ms" if x < 1 else f"{x:.3g} s"


def _mib(x: float) -> str:
    return f"{x / (1 << 20):.1f} MiB"


def _rate(x: float) -> str:
    return f"{x:,.0f}" if x >= 100 else f"{x:.3g}"


def _percent(x: float) -> str:
    return f"{x:.2f} %"


def _share(x: float) -> str:
    return f"{100 * x:.0f} %"


def _divergence(x: float) -> str:
    return f"{x:.1e}"


def _cosine(x: float) -> str:
    return f"{x:.6f}"


def _score(x: float) -> str:
    return f"{x:.4g}"


@dataclass(frozen=True)
class Figure:
    """key: its name in results.json. step and path: where it is read. group: whose share of change holds for it; "" for
    what follows from others and from the machine's limits, and is shown but not compared. better: +1 more is better,
    -1 less, 0 neither. least: what is smaller does not count as a change."""

    key: str
    title: str
    step: str
    path: tuple[str, ...]
    group: str
    better: int
    write: Callable[[float], str]
    least: float = 0.0

    @property
    def section(self) -> str:
        """Of the report's tables, the one that it stands in."""
        return {"check": "accuracy", "eval": "accuracy", "latency": "speed"}.get(self.step, "start")

    def change(self, before: float, now: float) -> float:
        """As a share of what it was; 0 for nothing worth telling."""
        if abs(now - before) <= self.least:
            return 0.0
        return (now - before) / abs(before) if before else math.copysign(math.inf, now - before)


FIGURES = (
    Figure("top1_percent", "top-1", "check", ("total", "top1_percent"), "accuracy", 1, _percent),
    Figure("min_cosine", "lowest cosine", "check", ("total", "min_cosine"), "accuracy", 1, _cosine, 1e-6),
    Figure("max_kl", "highest KL", "check", ("total", "max_kl"), "accuracy", -1, _divergence, 1e-9),
    Figure("mean_kl", "mean KL", "check", ("total", "mean_kl"), "accuracy", -1, _divergence, 1e-9),
    Figure("prefill_tok_s", "prefill tok/s", "latency", ("prefill_tok_s",), "speed", 1, _rate),
    Figure("prefill_peak_ratio", "of the peak", "latency", ("prefill_peak_ratio",), "", 1, _share),
    Figure("decode_tok_s", "decode tok/s", "latency", ("decode_tok_s",), "speed", 1, _rate),
    Figure("decode_bandwidth_ratio", "of the bandwidth", "latency", ("decode_bandwidth_ratio",), "", 1, _share),
    Figure("latency_s", "latency", "latency", ("percentiles", "50"), "", -1, _seconds),
    Figure("ready_s", "server ready", "start", ("ready_s",), "speed", -1, _seconds, 0.1),
    Figure("warm_startup_s", "first token, warm", "startup",
           ("warm_startup_percentiles", "50"), "speed", -1, _seconds, 0.01),
    Figure("cold_startup_s", "first token, cold", "startup",
           ("cold_startup_percentiles", "50"), "speed", -1, _seconds, 0.1),
    Figure("peak_rss_bytes", "memory", "startup", ("peak_rss_bytes",), "memory", -1, _mib),
    Figure("peak_rss_other_bytes", "not of files", "startup", ("peak_rss_other_bytes",), "memory", -1, _mib, 1 << 20),
)
_BY_KEY = {figure.key: figure for figure in FIGURES}
SCORE = "score "  # keys of evaluated metrics begin so


def figure_of(key: str) -> Figure:
    """Of a key that read_figures gave, or an earlier version of it."""
    if key in _BY_KEY:
        return _BY_KEY[key]
    return Figure(key, key.replace(SCORE, "", 1), "eval", (), "score", 1, _score)


def read_figures(step: str, output: Any) -> dict[str, float]:
    """What a step's JSON holds; numbers that are missing or not finite are left out."""
    found: dict[str, float] = {}
    for figure in FIGURES:
        value = output if figure.step == step else None
        for name in figure.path:
            value = value.get(name) if isinstance(value, dict) else None
        if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value):
            found[figure.key] = float(value)
    rows = output.get("rows") if step == "eval" and isinstance(output, dict) else None
    for row in rows or ():
        found[f"{SCORE}{row['task']} {row['metric']}"] = float(row["value"])
    return found
