"""Greedy answers of the program to many prompts in one run, and transformers' word on each in one forward pass.

An id that is transformers' best one behind those before it is what its generate() would choose, at a fraction of
the time. Not so where an answer crosses LongRoPE's original length: generate() keeps the keys that it has there.
"""
import torch


def program_answers(phidelity, folder, prompts, n, *flags):
    """Lists of at most n ids. One thread: a second one changes no bit, and tiny models only wait for it."""
    words = [word for ids in prompts for word in ("--prompt-token-ids", " ".join(map(str, ids)))]
    out = phidelity("generate", folder, *words, "--print-token-ids", "--temperature", 0, "--max-tokens", n,
                    "--dtype", "float32", "--threads", 1, *flags)
    answers = [[int(word) for word in line.split()] for line in out.splitlines()]
    assert len(answers) == len(prompts)
    return answers


def crosses(config, ids, n):
    """Whether n ids behind these cross LongRoPE's original length."""
    original = getattr(config, "original_max_position_embeddings", None)
    return original is not None and len(ids) <= original < len(ids) + n


@torch.no_grad()
def confirmed(model, ids, answer):
    """Whether each id of the answer is the model's best one."""
    logits = model(torch.tensor([[*ids, *answer[:-1]]]), use_cache=False).logits[0]
    return logits[len(ids) - 1:].argmax(-1).tolist() == answer
