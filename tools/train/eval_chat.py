"""Scores a chat model on a held-out file under transformers: greedy decoding, weights run as float32, exact match.

    python tools/train/eval_chat.py models/phi3-tiny-chat [--limit N] [--show-wrong N]

Questions whose prompts have the same number of tokens run as one batch: no padding, so the LongRoPE
regime of each is that of its own length.
"""

import argparse
import collections
import json
import pathlib

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

BATCH_ROWS = 32


def answers(model, tokenizer, questions):
    """(question, generated text) for each question."""
    by_length = collections.defaultdict(list)
    for question in questions:
        text = tokenizer.apply_chat_template(question["messages"], tokenize=False, add_generation_prompt=True)
        ids = tokenizer.encode(text, add_special_tokens=False)
        by_length[len(ids)].append((question, ids))
    for rows in by_length.values():
        for start in range(0, len(rows), BATCH_ROWS):
            part = rows[start:start + BATCH_ROWS]
            inputs = torch.tensor([ids for _, ids in part])
            out = model.generate(inputs, attention_mask=torch.ones_like(inputs), do_sample=False, max_new_tokens=64)
            for (question, ids), row in zip(part, out):
                yield question, tokenizer.decode(row[len(ids):], skip_special_tokens=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--limit", type=int)
    parser.add_argument("--show-wrong", type=int, default=0)
    arguments = parser.parse_args()
    lines = (arguments.folder / "heldout.jsonl").read_text(encoding="utf-8").splitlines()[:arguments.limit]
    questions = [json.loads(line) for line in lines]
    tokenizer = AutoTokenizer.from_pretrained(arguments.folder)
    model = AutoModelForCausalLM.from_pretrained(arguments.folder, dtype=torch.float32).eval()
    original_length = model.config.original_max_position_embeddings

    scores, n_shown = collections.defaultdict(lambda: [0, 0]), 0
    for question, text in answers(model, tokenizer, questions):
        right = text == question["answer"]
        kind, _, form = question["kind"].partition("/")
        regime = "long" if question["n_tokens"] > original_length else "short"
        for name in ("all", f"kind {kind}", f"form {form}" if form else None, f"length {regime}"):
            if name:
                scores[name][0] += right
                scores[name][1] += 1
        if not right and n_shown < arguments.show_wrong:
            n_shown += 1
            print(f"{question['messages'][-1]['content']}\n  wanted {question['answer']!r}\n  got    {text!r}")
    for name, (n_right, n) in sorted(scores.items()):
        print(f"{name:24} {n_right:5}/{n:<5} {100.0 * n_right / n:6.2f} %")


if __name__ == "__main__":
    with torch.inference_mode():
        main()
