"""Logprobs as vLLM gives them: for each position a dict from token id to Logprob."""
from __future__ import annotations

from ._record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Optional

    # The sampled token (for prompts: the actual one) stands first, then the k best.
    LogprobsOnePosition = Dict[int, "Logprob"]
    SampleLogprobs = List[LogprobsOnePosition]  # [n_output_tokens]
    PromptLogprobs = List[Optional[LogprobsOnePosition]]  # [n_prompt_tokens], the first None


class Logprob(Record):
    """One token at one position.

    logprob: natural logarithm of its probability in the model's own distribution (before
    temperature, penalties and biases); rank: 1 for the most likely; decoded_token: its text there.
    """

    def __init__(self, logprob: float, rank: int | None = None, decoded_token: str | None = None) -> None:
        self.logprob = logprob
        self.rank = rank
        self.decoded_token = decoded_token
