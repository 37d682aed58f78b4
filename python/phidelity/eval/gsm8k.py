"""Word problems in the format of gsm8k, {"question", "answer": "... #### 42"} a line: prompts, and who is right.

Prompts, the choice of shots, extraction and comparison are those of lm-eval's task gsm8k (version 3), so the
score of a file here is the score that it gives there; tests/oracle compares them.
"""
from __future__ import annotations

import json
import random
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .scores import Score, mean_score

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from .askers import Asker, Message, Prompt

STRICT, FLEXIBLE = "exact_match,strict-match", "exact_match,flexible-extract"
SHOTS_SEED = 1234
STOP = ("Question:", "</s>", "<|im_end|>")
MAX_TOKENS = 256
NOT_FOUND = "[invalid]"

_STRICT = re.compile(r"#### (\-?[0-9\.\,]+)")
_FLEXIBLE = re.compile(r"(-?[$0-9.,]{2,})|(-?[0-9]+)")
_IGNORED = [re.compile(p) for p in (",", r"\$", r"(?s).*#### ", r"\.$")]


class DataError(ValueError):
    """A file that has not the format, as "file:line: what is wrong"."""


@dataclass(frozen=True)
class Question:
    """question: the text. answer: the whole solution, which ends with "#### " and the number."""

    question: str
    answer: str


@dataclass(frozen=True)
class Settings:
    """How a file is asked. num_fewshot: solved examples before each question. chat: through the chat
    template; multiturn: the examples as turns of their own, else all in one. limit: only the first questions.
    system_prompt: in front of all, or None."""

    num_fewshot: int = 5
    chat: bool = True
    multiturn: bool = True
    limit: int | None = None
    max_tokens: int = MAX_TOKENS
    stop: tuple[str, ...] = STOP
    system_prompt: str | None = None


@dataclass(frozen=True)
class Result:
    """The two scores (strict, flexible), and each question with its response."""

    scores: list[Score]
    samples: list[dict[str, Any]] = field(default_factory=list)


def read_questions(path: str) -> list[Question]:
    """The questions of a file. Raises OSError, and DataError that names the line."""
    questions = []
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                questions.append(_read_line(line, f"{path}:{number}"))
    if not questions:
        raise DataError(f"{path}: no questions")
    return questions


def _read_line(line: str, where: str) -> Question:
    try:
        line.encode()
        value = json.loads(line)
    except ValueError:
        raise DataError(f"{where}: not JSON in UTF-8") from None
    question, answer = (value.get("question"), value.get("answer")) if isinstance(value, dict) else (None, None)
    if not (isinstance(question, str) and question and isinstance(answer, str) and answer):
        raise DataError(f'{where}: expected {{"question": "...", "answer": "... #### 42"}}')
    if not _STRICT.search(answer):
        raise DataError(f"{where}: the answer does not end with '#### ' and a number")
    return Question(question, answer)


# ---------------------------------------------------------------- prompts

def choose_shots(asked: Sequence[Question], pool: Sequence[Question], n: int, own: bool) -> list[list[Question]]:
    """n solved examples for each question, drawn as lm-eval draws them: one generator for all questions in
    turn, and where the pool is the questions' own file (own) the question itself is never among them.

    Raises DataError when the pool is too small.
    """
    if n + own > len(pool) and n > 0:
        raise DataError(f"{n} examples for each question are wanted, and there are {len(pool) - own} to take them from")
    generator = random.Random(SHOTS_SEED)
    return [_draw(generator, question, pool, n, own) if n > 0 else [] for question in asked]


def _draw(generator: random.Random, question: Question, pool: Sequence[Question], n: int, own: bool) -> list[Question]:
    if not own:
        return generator.sample(pool, n)
    drawn = [q for q in generator.sample(pool, n + 1) if q != question][:n]
    if len(drawn) < n:  # the file has the question several times
        others = [q for q in pool if q != question]
        if len(others) < n:
            raise DataError(f"{n} examples are wanted, and only {len(others)} differ from '{question.question}'")
        drawn = generator.sample(others, n)
    return drawn


def _asked(question: Question) -> str:
    return f"Question: {question.question}\nAnswer:"


def make_prompt(question: Question, shots: Sequence[Question], settings: Settings) -> Prompt:
    """A text, or with settings.chat the messages."""
    messages: list[Message] = []
    if settings.system_prompt is not None:
        messages.append({"role": "system", "content": settings.system_prompt})
    if settings.chat and settings.multiturn:
        for shot in shots:
            messages += [{"role": "user", "content": _asked(shot)}, {"role": "assistant", "content": shot.answer}]
        return [*messages, {"role": "user", "content": _asked(question)}]
    text = "".join(f"{_asked(shot)} {shot.answer}\n\n" for shot in shots) + _asked(question)
    if settings.chat:
        return [*messages, {"role": "user", "content": text}]
    return (settings.system_prompt or "") + text


def make_prompts(questions: Sequence[Question], pool: Sequence[Question] | None, settings: Settings) -> list[Prompt]:
    """The prompt of each question up to the limit. pool: where examples come from, None: the questions themselves.
    Raises DataError for a pool that is too small."""
    asked = questions[:settings.limit]
    shots = choose_shots(asked, questions if pool is None else pool, settings.num_fewshot, own=pool is None)
    return [make_prompt(q, s, settings) for q, s in zip(asked, shots)]


# ---------------------------------------------------------------- who is right

def extract_strict(response: str) -> str:
    """The first number behind "#### ", NOT_FOUND without one."""
    match = _STRICT.search(response)
    return match[1].strip() if match else NOT_FOUND


def extract_flexible(response: str) -> str:
    """The last thing that looks like a number, NOT_FOUND without one."""
    found = NOT_FOUND
    for match in _FLEXIBLE.finditer(response):
        found = (match[1] or match[2]).strip()
    return found


def normalize(text: str) -> str:
    """What is compared: without commas, dollars, all up to "#### " and a point at the end, in lower case."""
    for pattern in _IGNORED:
        text = pattern.sub("", text)
    return text.lower()


def is_right(extracted: str, question: Question) -> bool:
    """Whether what was extracted from a response is the question's number."""
    return normalize(extracted) == normalize(question.answer)


def run(asker: Asker, task: str, questions: Sequence[Question], prompts: Sequence[Prompt],
        settings: Settings) -> Result:
    """Asks the prompts that make_prompts made of the questions, greedily. Raises what the asker raises."""
    responses = asker.ask_all(prompts, settings.max_tokens, settings.stop)
    samples: list[dict[str, Any]] = []
    hits: dict[str, list[bool]] = {STRICT: [], FLEXIBLE: []}
    for question, response in zip(questions, responses):
        strict, flexible = extract_strict(response), extract_flexible(response)
        hits[STRICT].append(is_right(strict, question))
        hits[FLEXIBLE].append(is_right(flexible, question))
        samples.append({"question": question.question, "answer": question.answer, "response": response,
                        "strict": strict, "flexible": flexible})
    return Result([mean_score(task, metric, found) for metric, found in hits.items()], samples)
