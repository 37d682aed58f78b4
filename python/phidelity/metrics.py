"""Metrics of the engine in the process, as values: vLLM's names, and the server's meaning of each."""
from __future__ import annotations

from ._record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Metric(Record):
    """name: as in /metrics of `phidelity serve`; labels: {"model_name": ..., "engine": "0"}."""

    def __init__(self, name: str, labels: dict[str, str]) -> None:
        self.name = name
        self.labels = labels


class Counter(Metric):
    """value: what has been counted since the LLM was made."""

    def __init__(self, name: str, labels: dict[str, str], value: int) -> None:
        super().__init__(name, labels)
        self.value = value


class Gauge(Metric):
    """value: as it is now."""

    def __init__(self, name: str, labels: dict[str, str], value: float) -> None:
        super().__init__(name, labels)
        self.value = value


class Histogram(Metric):
    """count and sum of all values; buckets: {upper bound: values up to it}, the last "+Inf"."""

    def __init__(self, name: str, labels: dict[str, str], count: int, sum: float, buckets: dict[str, int]) -> None:
        super().__init__(name, labels)
        self.count = count
        self.sum = sum
        self.buckets = buckets


_GAUGES = (
    ("vllm:num_requests_running", "n_running"),
    ("vllm:num_requests_waiting", "n_waiting"),
    ("vllm:kv_cache_usage_perc", "kv_usage"),
)
_COUNTERS = (
    ("vllm:prefix_cache_queries", "n_prefix_queries"),
    ("vllm:prefix_cache_hits", "n_prefix_hits"),
    ("vllm:num_preemptions", "n_preemptions"),
    ("vllm:prompt_tokens", "n_prompt_tokens"),
    ("vllm:prompt_tokens_cached", "n_cached_prompt_tokens"),
    ("vllm:generation_tokens", "n_generated_tokens"),
    ("vllm:corrupted_requests", "n_nan_requests"),
    ("phidelity_engine_steps", "n_steps"),
    ("phidelity_longrope_crossings", "n_crossings"),
)
_HISTOGRAMS = (
    ("vllm:iteration_tokens_total", "iteration_tokens"),
    ("vllm:inter_token_latency_seconds", "inter_token_s"),
)


def _histogram(name: str, labels: dict[str, str], h: Any) -> Histogram:
    total, buckets = 0, {}
    for i in range(h.n + 1):
        total += h.counts[i]
        buckets[f"{h.bounds[i]:g}" if i < h.n else "+Inf"] = total
    return Histogram(name, labels, total, h.sum, buckets)


def read_metrics(stats: Any, model_name: str) -> list[Metric]:
    """A struct phi_engine_stats as a list."""
    labels = {"model_name": model_name, "engine": "0"}
    return [
        *(Gauge(name, labels, getattr(stats, field)) for name, field in _GAUGES),
        *(Counter(name, labels, getattr(stats, field)) for name, field in _COUNTERS),
        *(_histogram(name, labels, getattr(stats, field)) for name, field in _HISTOGRAMS),
    ]
