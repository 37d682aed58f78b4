"""Beam search: the likeliest answers as a whole, where sampling takes one token after the other.

Each step asks the engine for one token after every beam and looks at what else might have stood there. The
engine computes for it what the prefix cache does not have: a block of keys at the most.
"""
from __future__ import annotations

from itertools import islice

from ._record import Record
from .exceptions import ValidationError
from .inputs import TokenizedPrompt, TokensPrompt
from .sampling_params import SamplingParams

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence
    from typing import Any

    from .logprobs import LogprobsOnePosition, SampleLogprobs
    from .progress import NoBar
    from .sampling_params import BeamSearchParams

    # One token after each sequence: what was sampled there, then the likeliest.
    Step = Callable[[Sequence[TokenizedPrompt]], Iterable[LogprobsOnePosition]]


class BeamSearchSequence(Record):
    """One of the answers.

    orig_prompt: the prompt's ids, text and cache_salt. tokens: [n_prompt + n_answer], of prompt and answer, with
    the token that ended it. logprobs: [n_answer] dicts {token id: Logprob}, of what else might have stood there.
    cum_logprob: the sum over the answer. text: of all tokens, the prompt's too. finish_reason: "stop" (then
    stop_reason is the token that ended it) or "length". lora_request is always None.
    """

    def __init__(self, orig_prompt: dict[str, Any], tokens: list[int], logprobs: SampleLogprobs,
                 lora_request: None = None, cum_logprob: float = 0.0, text: str | None = None,
                 finish_reason: str | None = None, stop_reason: int | str | None = None) -> None:
        self.orig_prompt = orig_prompt
        self.tokens = tokens
        self.logprobs = logprobs
        self.lora_request = lora_request
        self.cum_logprob = cum_logprob
        self.text = text
        self.finish_reason = finish_reason
        self.stop_reason = stop_reason


class BeamSearchOutput(Record):
    """sequences: the answers to one prompt, the best first, beam_width of them."""

    def __init__(self, sequences: list[BeamSearchSequence]) -> None:
        self.sequences = sequences


class _Candidate:
    """A beam and one token more, which becomes a sequence when it is kept."""

    def __init__(self, score: float, beam: BeamSearchSequence, token: int, row: LogprobsOnePosition) -> None:
        self.score = score
        self.beam = beam
        self.token = token
        self.row = row

    def sequence(self, finish_reason: str | None = None) -> BeamSearchSequence:
        beam = self.beam
        return BeamSearchSequence(beam.orig_prompt, [*beam.tokens, self.token], [*beam.logprobs, self.row],
                                  cum_logprob=beam.cum_logprob + self.row[self.token].logprob,
                                  finish_reason=finish_reason,
                                  stop_reason=self.token if finish_reason == "stop" else None)


class Beams:
    """The search of one prompt. live: sequences that go on, the best first; [] when it is over."""

    def __init__(self, prompt: TokenizedPrompt, params: BeamSearchParams, ends: Collection[int],
                 max_model_len: int) -> None:
        self.prompt = prompt
        self._params = params
        self._ends = ends
        self._longest = min(len(prompt.ids) + params.max_tokens, max_model_len)
        shown = {"prompt": prompt.text, "cache_salt": prompt.cache_salt}
        original = TokensPrompt(prompt_token_ids=prompt.ids, **{k: v for k, v in shown.items() if v is not None})
        self.live = [BeamSearchSequence(original, prompt.ids, [])]
        self.ended: list[BeamSearchSequence] = []

    def take(self, rows: Sequence[LogprobsOnePosition]) -> None:
        """What may come after each of the live sequences."""
        going_on, ending = [], []
        for beam, row in zip(self.live, rows):
            for token, entry in row.items():
                score = self._score(beam.cum_logprob + entry.logprob, len(beam.tokens) + 1, token)
                stops = token in self._ends and not self._params.ignore_eos
                (ending if stops else going_on).append(_Candidate(score, beam, token, row))
        self.ended = self._best(self.ended + [c.sequence("stop") for c in ending])
        going_on.sort(key=lambda c: c.score, reverse=True)
        self.live = [c.sequence() for c in going_on[:self._params.beam_width]]
        if not self.live or len(self.live[0].tokens) >= self._longest or self._is_settled():
            for beam in self.live:
                beam.finish_reason = "length"
            self.ended = self._best(self.ended + self.live)
            self.live = []

    def _score(self, cum_logprob: float, n_tokens: int, last: int) -> float:
        """As vLLM's: the prompt counts for the length, an end does not."""
        return cum_logprob / (n_tokens - (last in self._ends)) ** self._params.length_penalty

    def _best(self, sequences: list[BeamSearchSequence]) -> list[BeamSearchSequence]:
        sequences = sorted(sequences, key=lambda s: self._score(s.cum_logprob, len(s.tokens), s.tokens[-1]),
                           reverse=True)
        return sequences[:self._params.beam_width]

    def _is_settled(self) -> bool:
        """Whether nothing that a live sequence can become is better than what has ended: its sum only falls, and at
        best the longest answer (of a penalty below 0: the shortest) divides it by most."""
        if len(self.ended) < self._params.beam_width:
            return False
        worst = self.ended[-1]
        bar = self._score(worst.cum_logprob, len(worst.tokens), worst.tokens[-1])
        lengths = (len(self.live[0].tokens) - 1, self._longest)
        return all(beam.cum_logprob / n ** self._params.length_penalty <= bar for beam in self.live for n in lengths)


def search(searches: Sequence[Beams], step: Step, bar: NoBar) -> list[BeamSearchOutput]:
    """All of them at once, each to its end."""
    active = list(searches)
    while active:
        rows = iter(step([TokenizedPrompt(None, beam.tokens, s.prompt.cache_salt) for s in active for beam in s.live]))
        for s in active:
            s.take(list(islice(rows, len(s.live))))
            if not s.live:
                bar.advance(1, len(s.prompt.ids), max(len(b.logprobs) for b in s.ended))
        active = [s for s in active if s.live]
    return [BeamSearchOutput(s.ended) for s in searches]


def step_params(params: BeamSearchParams, max_logprobs: int) -> SamplingParams:
    """Of one step: twice beam_width tokens, so that enough go on when half of them are ends. Raises
    ValidationError when an LLM of this max_logprobs does not tell as many."""
    wanted = 2 * params.beam_width
    if -1 < max_logprobs < wanted:
        raise ValidationError(f"a beam_width of {params.beam_width} needs LLM(..., max_logprobs={wanted}); it is "
                              f"{max_logprobs}", parameter="beam_width", value=params.beam_width)
    return SamplingParams(temperature=params.temperature, max_tokens=1, logprobs=wanted, detokenize=False)
