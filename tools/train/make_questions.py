#!/usr/bin/env python3
"""Writes held-out questions in gsm8k's format: python tools/train/make_questions.py FILE [N]

Each line is {"question", "answer"}; the answer shows the steps and ends with "#### " and the number.
"""
import json
import sys
from pathlib import Path

from word_problems import Generator

SEED = 7


def questions(n):
    """n different questions as they are asked by themselves."""
    generator, found = Generator(SEED, held_out=True), {}
    while len(found) < n:
        story = generator.story()
        if story.question.endswith("?"):
            found[story.question] = f"{story.answer.render('steps')}\n#### {story.answer.value}"
    return [{"question": question, "answer": answer} for question, answer in found.items()]


if __name__ == "__main__":
    rows = questions(int(sys.argv[2]) if len(sys.argv) > 2 else 100)
    Path(sys.argv[1]).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
