#!/usr/bin/env python3
"""Time to the first token of a long prompt over HTTP, with its prefix in the cache and without.

Prints both and their ratio. The model is a small one of random weights with a long context, so that
a computer of any size gets there; the ratio of a real model is larger still, the part of a prompt that is
not cached being as short, and the rest as much more work as the model is larger.

PHIDELITY names the program, PHI_MODELS the bundled models, PHI_PREFIX_TOKENS the length (50000).
"""
import json
import os
import random
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "server"))
from serving import CODE, Server  # noqa: E402

N_PREFIX = int(os.environ.get("PHI_PREFIX_TOKENS", 50000))
N_QUESTION = 20  # tokens of a request's own after the prefix
N_COLD, N_WARM = 1, 10


def make_model(folder):
    config = json.loads((CODE / "config.json").read_text())
    config.update(hidden_size=128, intermediate_size=256, num_attention_heads=2, num_key_value_heads=2,
                  num_hidden_layers=2, max_position_embeddings=N_PREFIX + 1024)
    (Path(folder) / "config.json").write_text(json.dumps(config))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(CODE / name, folder)


def time_to_first_token(server, ids):
    """(seconds, usage of the whole answer)"""
    body = json.dumps({"prompt": ids, "max_tokens": 2, "temperature": 0, "ignore_eos": True, "stream": True,
                       "stream_options": {"include_usage": True}})
    connection = server.connection(timeout_s=3600)
    start = time.monotonic()
    connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
    response = connection.getresponse()
    first = response.readline()
    took_s = time.monotonic() - start
    assert response.status == 200 and first.startswith(b"data: {"), first
    usage = [json.loads(line[6:]).get("usage") for line in response.read().split(b"\n")
             if line.startswith(b"data: {")]
    connection.close()
    return took_s, usage[-1]


def main():
    rng = random.Random(1)

    def tokens(n):
        return [rng.randrange(4000) for _ in range(n)]
    with tempfile.TemporaryDirectory() as folder:
        make_model(folder)
        server = Server(folder, "--load-format", "dummy", "--max-num-seqs", 4, "--enable-prompt-tokens-details")
        cold, warm = [], []
        for _ in range(N_COLD):
            prefix = tokens(N_PREFIX)
            cold.append(time_to_first_token(server, prefix + tokens(N_QUESTION))[0])
        for _ in range(N_WARM):
            took_s, usage = time_to_first_token(server, prefix + tokens(N_QUESTION))
            warm.append(took_s)
        n_cached = usage["prompt_tokens_details"]["cached_tokens"]
        server.end()
        server.close()
    without_s, with_s = statistics.median(cold), statistics.median(warm)
    print(f"time to first token, {N_PREFIX} shared prompt tokens and {N_QUESTION} of its own:")
    print(f"  nothing cached       {without_s * 1000:10.1f} ms")
    print(f"  {n_cached:6} cached        {with_s * 1000:10.1f} ms")
    print(f"  ratio                {without_s / with_s:10.1f}")


if __name__ == "__main__":
    main()
