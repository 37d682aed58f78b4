#!/usr/bin/env python3
"""Throughput and latency of `phidelity serve` under 1, 8 and 64 streaming clients, in the terms of `vllm bench
serve`: time to first token, time per output token after the first, whole latency.

PHIDELITY names the program; PHI_BENCH_MODEL the model (the bundled code model), PHI_BENCH_INPUT and
PHI_BENCH_OUTPUT the tokens of a request (64, 32), PHI_BENCH_REQUESTS how many (128).
"""
import json
import os
import random
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "server"))
from serving import CODE, Server  # noqa: E402

MODEL = os.environ.get("PHI_BENCH_MODEL", CODE)
N_INPUT = int(os.environ.get("PHI_BENCH_INPUT", 64))
N_OUTPUT = int(os.environ.get("PHI_BENCH_OUTPUT", 32))
N_REQUESTS = int(os.environ.get("PHI_BENCH_REQUESTS", 128))


def one(connection, ids):
    """(time to first token, time of each later one, whole time) of a streamed request."""
    body = json.dumps({"prompt": ids, "max_tokens": N_OUTPUT, "temperature": 0, "ignore_eos": True, "stream": True})
    start = time.monotonic()
    connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
    response = connection.getresponse()
    assert response.readline().startswith(b"data: {")
    first = time.monotonic()
    assert response.read().endswith(b"data: [DONE]\n\n")
    end = time.monotonic()
    return first - start, (end - first) / (N_OUTPUT - 1), end - start


def burst(server, n_clients, rng):
    left = [[rng.randrange(1000) for _ in range(N_INPUT)] for _ in range(min(N_REQUESTS, 16 * n_clients))]
    n, times, lock = len(left), [], threading.Lock()

    def client():
        connection = server.connection()
        while True:
            with lock:
                if not left:
                    break
                ids = left.pop()
            times.append(one(connection, ids))
        connection.close()
    threads = [threading.Thread(target=client) for _ in range(n_clients)]
    start = time.monotonic()
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    took_s = time.monotonic() - start
    assert len(times) == n, "requests failed"
    row = [f"{n_clients:7} {n:8} {n / took_s:8.1f} {n * N_OUTPUT / took_s:9.0f}"]
    for column in zip(*times):
        ordered = sorted(column)
        row += [f"{1000 * ordered[n // 2]:8.1f} {1000 * ordered[min(n - 1, n * 99 // 100)]:8.1f}"]
    print("  ".join(row), flush=True)


def main():
    rng = random.Random(1)
    server = Server(MODEL, "--max-model-len", N_INPUT + N_OUTPUT, "--disable-uvicorn-access-log")
    print(f"{N_INPUT} prompt tokens, {N_OUTPUT} output tokens; times in ms, median and 99th percentile")
    print("clients requests    req/s output/s   first token         each later        whole")
    for n_clients in (1, 8, 64):
        burst(server, n_clients, rng)
    server.end()
    server.close()


if __name__ == "__main__":
    main()
