#!/usr/bin/env python3
"""Writes word problems as a gsm8k folder: train.jsonl and test.jsonl, lines of {"question", "answer"}.

    python3 deploy/aisbench/make_data.py FOLDER [--questions N] [--seed S]

They are of the kind that models/phi3-tiny-chat was trained on, and held out from its training. An answer
ends with "#### " and the number, as gsm8k's do. Standard library only.
"""
import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools" / "train"))

import word_problems  # noqa: E402  (tools/train is on the path only now)


def problems(n, seed):
    generator = word_problems.Generator(seed, held_out=True)
    for _ in range(n):
        story = generator.story()
        answer = story.answer.render("steps")
        yield {"question": story.question, "answer": f"{answer}\n#### {story.answer.value}"}


def write(folder, n=200, seed=1):
    """Two files of n problems; gsm8k's readers want both, and take examples from train.jsonl."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, its_seed in (("train", seed + 1), ("test", seed)):
        lines = [json.dumps(p) + "\n" for p in problems(n, its_seed)]
        (folder / f"{name}.jsonl").write_text("".join(lines))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--questions", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    write(arguments.folder, arguments.questions, arguments.seed)


if __name__ == "__main__":
    main()
