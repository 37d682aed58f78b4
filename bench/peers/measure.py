"""What a worker of peers.py measures, the same for every engine: MODEL THREADS startup|speed SHAPES.

An Engine has prefill(prompts) and step(position, tokens), which return each sequence's likeliest next token, and
n_vocabulary.
"""
import json
import random
import sys
import time


def prompts_of(engine, n, n_tokens):
    rng = random.Random(n_tokens)
    return [[rng.randrange(100, engine.n_vocabulary - 100) for _ in range(n_tokens)] for _ in range(n)]


def answer(engine, n, n_input, n_output):
    """(seconds to the first tokens, seconds of all the others)"""
    prompts = prompts_of(engine, n, n_input)
    start = time.perf_counter()
    tokens = engine.prefill(prompts)
    first = time.perf_counter()
    for i in range(n_output - 1):
        tokens = engine.step(n_input + i, tokens)
    return first - start, time.perf_counter() - first


def speed(engine, shapes):
    answer(engine, 1, 16, 4)  # warm
    n_input, n_output = shapes["input"], shapes["output"]
    prefill_s, _ = answer(engine, 1, shapes["prefill"], 1)
    _, decode_s = answer(engine, 1, n_input, n_output)
    result = {"prefill": shapes["prefill"] / prefill_s, "decode": (n_output - 1) / decode_s}
    for n in shapes["requests"]:
        result[f"x{n}"] = n * n_output / sum(answer(engine, n, n_input, n_output))
    return result


def main(make_engine):
    model, n_threads, what, shapes = sys.argv[1], int(sys.argv[2]), sys.argv[3], json.loads(sys.argv[4])
    n_sequences = 1 if what == "startup" else max(shapes["requests"])
    n_tokens = 64 if what == "startup" else max(shapes["prefill"], shapes["input"] + shapes["output"])
    engine = make_engine(model, n_threads, n_sequences, n_tokens)
    if what == "startup":
        print(engine.prefill(prompts_of(engine, 1, shapes["startup"]))[0], flush=True)
    else:
        print(json.dumps(speed(engine, shapes)), flush=True)
