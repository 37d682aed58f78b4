#!/usr/bin/env python3
"""Many clients on a KV pool that is far too small, a fifth of whom leave: every other answer must be, byte for
byte, the one that the same request gets alone, and nothing may be left behind. Prints TAP.

PHI_LOAD_REQUESTS (200; 80 in a build with a sanitizer), PHI_LOAD_CLIENTS (64) and PHI_LOAD_SEED (1) make it
longer or different.
"""
import http.client
import json
import os
import random
import re
import socket
import struct
import threading
import time
import unittest

import serving
from serving import CHAT, Server, eventually, events

import tap

SLOW = serving.SANITIZED  # a fiftieth of the speed: fewer and shorter
N_REQUESTS = int(os.environ.get("PHI_LOAD_REQUESTS", 80 if SLOW else 200))
N_CLIENTS = int(os.environ.get("PHI_LOAD_CLIENTS", 64))
SEED = int(os.environ.get("PHI_LOAD_SEED", 1))
N_DISTINCT = min(200, N_REQUESTS // (8 if SLOW else 4))
LEAVERS = 0.2

MAX_LEN, BLOCK, N_BLOCKS = 416, 16, 30  # one of the longest requests nearly fills the pool
RSS_BOUND = 8 << 20  # the allocator's own play; half of the requests, leaked, would be far more


def make_request(rng):
    """(path, fields): of either kind, greedy or seeded, with and without a prefix that others have too."""
    shared = "Ann has 12 apples and gives 5 to Ben. How many apples does she have now? " * rng.choice([1, 3])
    fields = {"max_tokens": rng.choice([5, 60, 100] if SLOW else [1, 5, 20, 60, 120]), "ignore_eos": rng.random() < 0.7,
              "return_token_ids": True}
    fields["temperature"] = 0 if rng.random() < 0.4 else rng.choice([0.5, 1, 1.5])
    if fields["temperature"]:
        fields.update(seed=rng.randrange(1000), top_p=rng.choice([1, 0.9]), n=rng.choice([1, 1, 2, 3]))
    if rng.random() < 0.2:
        fields["stop"] = rng.sample(["1", "a", "e ", "<", "\n"], 2)
    if rng.random() < 0.2:
        fields["repetition_penalty"] = 1.2
    if rng.random() < 0.5:
        question = (shared if rng.random() < 0.4 else "") + f"What is {rng.randrange(99)} plus {rng.randrange(99)}?"
        fields["messages"] = [{"role": "user", "content": question}]
        if rng.random() < 0.3:
            fields.update(logprobs=True, top_logprobs=rng.randrange(4))
        return "/v1/chat/completions", fields
    ids = [rng.randrange(1, 1200) for _ in range(rng.choice([1, 2, 5, 15, 16, 17, 60, 280]))]
    fields["prompt"] = ids if rng.random() < 0.7 else shared + "It is " * rng.randrange(9)
    if rng.random() < 0.3:
        fields["logprobs"] = rng.randrange(4)
    if rng.random() < 0.15:
        fields["echo"] = True
    return "/v1/completions", fields


def encode(path, fields, stream):
    body = json.dumps(dict(fields, stream=stream, **(
        {"stream_options": {"include_usage": True}} if stream else {}))).encode()
    return (f"POST {path} HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\nConnection: close\r\n"
            f"Content-Length: {len(body)}\r\n\r\n").encode() + body


def without_identity(body):
    """An answer's bytes but for what must differ: when and which it was."""
    return re.sub(rb'"(id|created)":\s*("[^"]*"|\d+)', b"", body)


def extend(into, new):
    """Adds the log probabilities of a chunk to those before: lists, or objects of lists."""
    for key, value in new.items():
        if isinstance(value, list):
            into.setdefault(key, []).extend(value)


def essence_of_whole(body):
    choices = {}
    for c in body["choices"]:
        message = c.get("message", {})
        choices[c["index"]] = {
            "text": message.get("content", c.get("text")), "ids": c["token_ids"],
            "end": [c["finish_reason"], c["stop_reason"]], "logprobs": c["logprobs"] or {}}
    return choices, {k: body["usage"][k] for k in ("prompt_tokens", "completion_tokens")}


def essence_of_stream(chunks):
    choices, usage = {}, None
    for chunk in chunks:
        if chunk.get("usage"):
            usage = {k: chunk["usage"][k] for k in ("prompt_tokens", "completion_tokens")}
        for c in chunk["choices"]:
            into = choices.setdefault(c["index"], {"text": "", "ids": [], "end": None, "logprobs": {}})
            assert into["end"] is None, f"more after the end: {chunk}"
            into["text"] += c.get("text") or c.get("delta", {}).get("content") or ""
            into["ids"] += c.get("token_ids") or []
            extend(into["logprobs"], c.get("logprobs") or {})
            if c.get("finish_reason"):
                into["end"] = [c["finish_reason"], c.get("stop_reason")]
    return choices, usage


def http_response(s):
    """The answer on a connection that ends with it; a cut one raises."""
    response = http.client.HTTPResponse(s)
    response.begin()
    return serving.Answer(response)


class Load(unittest.TestCase):
    def setUp(self):
        self.rng = random.Random(SEED)
        self.requests = [make_request(self.rng) for _ in range(N_DISTINCT)]
        self.failures = []

    # ------------------------------------------------------------ alone

    def serve_alone(self):
        """What each request is answered when it is the only one, without any cache."""
        server = Server(CHAT, "--max-model-len", MAX_LEN, "--no-enable-prefix-caching")
        self.addCleanup(server.close)
        connection = server.connection()
        self.alone = []
        for path, fields in self.requests:
            answer = server.ask("POST", path, dict(fields), keep=connection)
            assert answer.status == 200, answer
            self.alone.append((without_identity(answer.body), essence_of_whole(answer.json())))
        connection.close()
        server.wait_idle()
        server.end()

    # ------------------------------------------------------------ clients

    def stay(self, server, i, stream):
        path, fields = self.requests[i]
        with server.socket() as s:
            s.sendall(encode(path, fields, stream))
            response = http_response(s)
        body, essence = self.alone[i]
        if response.status != 200:
            return f"status {response}"
        if not stream:
            got = without_identity(response.body)
            return None if got == body else f"{got!r}\ninstead of\n{body!r}"
        got = essence_of_stream(events(response.body))
        return None if got == essence else f"stream {got!r}\ninstead of\n{essence!r}"

    @staticmethod
    def leave(server, request, moment, delay_s, n_bytes, reset):
        """Goes away in the middle of the request, before the answer, during it, or right after."""
        s = server.socket()
        try:
            if moment == "request":
                s.sendall(request[:len(request) * 2 // 3])
            else:
                s.sendall(request)
            if moment == "before":
                time.sleep(delay_s)
            if moment in ("during", "after"):
                n = 0
                while piece := s.recv(4096):
                    n += len(piece)
                    if moment == "during" and n >= n_bytes:
                        break
            if reset:
                s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        finally:
            s.close()

    def burst(self, server, n_requests):
        """n_requests from N_CLIENTS at a time; returns how many stayed."""
        plan = [(self.rng.randrange(N_DISTINCT), self.rng.random() < 0.5, self.rng.random() < LEAVERS,
                 self.rng.choice(["request", "before", "before", "during", "during", "after"]),
                 self.rng.random() * 0.3, self.rng.randrange(2000), self.rng.random() < 0.5)
                for _ in range(n_requests)]
        lock, left = threading.Lock(), list(plan)

        def client():
            while not self.failures:
                with lock:
                    if not left:
                        return
                    i, stream, leaves, moment, delay_s, n_bytes, reset = left.pop()
                try:
                    if leaves:
                        self.leave(server, encode(*self.requests[i], stream), moment, delay_s, n_bytes, reset)
                        continue
                    wrong = self.stay(server, i, stream)
                except Exception as error:
                    wrong = f"{type(error).__name__}: {error}"
                if wrong:
                    self.failures.append(f"{self.requests[i]} stream={stream}\n{wrong}")
        threads = [threading.Thread(target=client) for _ in range(N_CLIENTS)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        return sum(not p[2] for p in plan)

    # ------------------------------------------------------------ the case

    def test_every_answer_as_if_alone(self):
        self.serve_alone()
        server = Server(CHAT, "--max-model-len", MAX_LEN, "--block-size", BLOCK, "--num-gpu-blocks-override",
                        N_BLOCKS, "--disable-uvicorn-access-log")
        self.addCleanup(server.close)
        server.wait_idle()
        n_files, start = server.n_files(), time.monotonic()

        n_stayed = self.burst(server, N_REQUESTS // 2)
        server.wait_idle()
        rss_half = server.rss_bytes()
        n_stayed += self.burst(server, N_REQUESTS - N_REQUESTS // 2)
        server.wait_idle()
        rss, took_s = server.rss_bytes(), time.monotonic() - start
        self.assertEqual(self.failures[:1], [], server.log()[-3000:])

        m = server.metrics()
        preemptions, hits = m["vllm:num_preemptions_total"], m["vllm:prefix_cache_hits_total"]
        aborted = m['vllm:request_success_total{finished_reason="abort"}']
        print(f"# {N_REQUESTS} requests ({n_stayed} stayed) of {N_CLIENTS} clients in {took_s:.1f} s; "
              f"{preemptions:.0f} preemptions, {hits:.0f} cached tokens, {aborted:.0f} aborted; "
              f"memory {rss / 2**20:.1f} MiB, {(rss - rss_half) / 2**20:+.1f} since half way", flush=True)
        self.assertGreater(preemptions, N_REQUESTS / 20)
        self.assertGreater(hits, 0)
        self.assertGreater(aborted, 0)
        self.assertEqual(m['vllm:request_success_total{finished_reason="error"}'], 0)
        eventually(lambda: server.get("/health") and server.n_files() <= n_files,
                   f"no descriptor is left beyond {n_files}")
        if not SLOW:  # their allocators keep what is freed
            self.assertLess(rss - rss_half, RSS_BOUND)
        server.end()


if __name__ == "__main__":
    tap.main()
