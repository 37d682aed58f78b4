"""What a worker of peers.py measures, the same for every engine: MODEL THREADS startup|speed SHAPES.

An Engine has n_vocabulary and generate(prompts, n_output), which yields after each step the tokens of every answer so far.
"""
import json
import os
import random
import sys
import time


N_WARM = 4  # tokens of each answer before anything is measured
random_tokens = random.Random(1)


class Stepwise:
    """An engine that is told each step: its prefill(prompts) and step(position, tokens) return the likeliest next token
    of each sequence."""

    def generate(self, prompts, n_output):
        answers = [[token] for token in self.prefill(prompts)]
        yield answers
        for i in range(n_output - 1):
            for answer, token in zip(answers, self.step(len(prompts[0]) + i, [answer[-1] for answer in answers])):
                answer.append(token)
            yield answers


def prompts_of(engine, n, n_tokens):
    """Other ones each time, of which no engine has anything in a cache."""
    return [[random_tokens.randrange(100, engine.n_vocabulary - 100) for _ in range(n_tokens)] for _ in range(n)]


def answer(engine, n, n_input, n_output):
    """(seconds to the first tokens, seconds of all the others)"""
    prompts = prompts_of(engine, n, n_input)
    start, first = time.perf_counter(), None
    for answers in engine.generate(prompts, n_output):
        if first is None and all(answers):
            first = time.perf_counter()
    end = time.perf_counter()
    if [len(answer) for answer in answers] != [n_output] * n:
        raise SystemExit(f"{n} answers of {n_output} tokens were asked for, not {[len(answer) for answer in answers]}")
    return first - start, end - first


def speed(engine, shapes):
    n_input, n_output = shapes["input"], shapes["output"]
    # Not the engine's work, but the system's: memory that is touched for the first time.
    answer(engine, max(shapes["requests"]), n_input, min(N_WARM, n_output))
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
    results = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever the engine has to say
    engine = make_engine(model, n_threads, n_sequences, n_tokens)
    if what == "startup":
        prompts = prompts_of(engine, 1, shapes["startup"])
        print(next(answers[0][0] for answers in engine.generate(prompts, 1) if answers[0]), file=results, flush=True)
    else:
        print(json.dumps(speed(engine, shapes)), file=results, flush=True)
