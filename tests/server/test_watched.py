#!/usr/bin/env python3
"""Runs the commands of docs/SERVING.md against a server, and then compares what the server says of
itself, metrics, statistics line and access log, with what was asked of it.

PHIDELITY names the program, PHI_TESTS the tests' folder, PHI_MODELS the bundled models. Prints TAP.
"""
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
import unittest
import urllib.error
import urllib.request
from pathlib import Path

PROGRAM = os.environ["PHIDELITY"]
MODEL = Path(os.environ["PHI_MODELS"]) / "phi-tiny-code"
SERVING = (Path(os.environ["PHI_TESTS"]).resolve().parent / "docs" / "SERVING.md").read_text()
INTERVAL_S = 0.3
STATS_LINE = re.compile(
    r"Engine 000: Avg prompt throughput: ([\d.]+) tokens/s, Avg generation throughput: ([\d.]+) tokens/s, "
    r"Running: (\d+) reqs, Waiting: (\d+) reqs, (?:Preemptions: \d+, )?GPU KV cache usage: ([\d.]+)%, "
    r"Prefix cache hit rate: ([\d.]+)%$")


class Server:
    """A running `phidelity serve`, with its log line by line."""

    def __init__(self, *flags):
        self.process = subprocess.Popen(
            [PROGRAM, "serve", str(MODEL), "--host", "127.0.0.1", "--port", "0", *flags],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.log = []
        self.reader = threading.Thread(target=self.read_log, daemon=True)
        self.reader.start()
        self.port = self.find_port()
        self.wait(lambda: self.get("/health")[0] == 200)

    def read_log(self):
        for line in self.process.stderr:
            self.log.append(line.rstrip("\n"))

    def wait(self, condition, seconds=60):
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end or self.process.poll() is not None:
                raise RuntimeError("the server does not come to it:\n" + "\n".join(self.log))
            time.sleep(0.02)

    def find_port(self):
        found = []

        def look():
            found.extend(m[1] for m in (re.search(r"http://127\.0\.0\.1:(\d+)", l) for l in self.log) if m)
            return found

        self.wait(look)
        return int(found[0])

    def request(self, method, path, body=None, headers=None):
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", method=method,
                                         data=body, headers=headers or {})
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def get(self, path):
        return self.request("GET", path)

    def post(self, path, **fields):
        return self.request("POST", path, json.dumps(fields).encode(), {"Content-Type": "application/json"})

    def metrics(self):
        """{name: {labels: value}}, labels as the text between the braces."""
        status, text = self.get("/metrics")
        assert status == 200, text
        out = {}
        for name, labels, value in re.findall(r"(?m)^([a-z0-9_:]+)(?:\{(.*)\})? (\S+)$", text):
            out.setdefault(name, {})[labels] = float(value)
        return out

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(60)
        self.reader.join(10)
        self.process.stderr.close()
        return code


def one(metrics, name, **labels):
    """The only series of a name that has these labels."""
    found = [v for k, v in metrics[name].items() if all(f'{a}="{b}"' in k for a, b in labels.items())]
    assert len(found) == 1, (name, labels, metrics[name])
    return found[0]


def documented_curls():
    """(path, body) of each curl with a body in the document; backslashes join lines."""
    text = SERVING.replace("\\\n", " ")
    for line in re.findall(r"(?m)^    (curl .*)$", text):
        words = shlex.split(line)
        url = next(w for w in words if w.startswith("http://127.0.0.1:8000/"))
        if "-d" in words:
            yield url.removeprefix("http://127.0.0.1:8000"), json.loads(words[words.index("-d") + 1])


class Watched(unittest.TestCase):
    def setUp(self):
        self.server = Server("--served-model-name", "phi-1", "--log-stats-interval", str(INTERVAL_S))

    def tearDown(self):
        if self.server.process.poll() is None:
            self.server.stop()

    def test_documented_commands(self):
        curls = list(documented_curls())
        self.assertGreaterEqual(len(curls), 2)
        for path, body in curls:
            status, text = self.server.post(path, **body)
            self.assertEqual(status, 200, text)
            if body.get("stream"):
                events = [l.removeprefix("data: ") for l in text.split("\n\n") if l]
                self.assertEqual(events[-1], "[DONE]")
                chunks = [json.loads(e) for e in events[:-1]]
                self.assertTrue("".join(c["choices"][0]["text"] for c in chunks if c["choices"]))
                self.assertEqual(chunks[-1]["usage"]["completion_tokens"], body["max_tokens"])
            else:
                self.assertTrue(json.loads(text)["choices"][0]["text"])

    def test_documented_errors(self):
        """A request for each row of the document's table that can be had from outside; the row has its
        status and type."""
        self.server.stop()
        self.server = Server("--max-body-bytes", "4K", "--max-header-bytes", "4K", "--api-key", "secret")
        key = {"Authorization": "Bearer secret"}
        json_key = key | {"Content-Type": "application/json"}
        path = "/v1/completions"
        rows = [
            ("POST", path, json_key, b"{", 400, "Bad Request"),
            ("POST", path, json_key, b'{"prompt": 1.5}', 400, "Bad Request"),
            ("POST", path, key | {"Content-Type": "text/plain"}, b"{}", 400, "Bad Request"),
            ("POST", path, json_key, b'{"prompt": "a", "temperature": -1}', 400, "BadRequestError"),
            ("POST", path, json_key, b'{"prompt": "a", "max_tokens": 1000000}', 400, "BadRequestError"),
            ("POST", path, json_key, b'{"prompt": "a", "suffix": "b"}', 400, "BadRequestError"),
            ("POST", path, json_key, b'{"prompt": "a", "model": "x"}', 404, "NotFoundError"),
            ("POST", path, json_key, b" " * 5000, 413, "RequestTooLargeError"),
            ("GET", "/v1/models", {}, None, 401, "Unauthorized"),
            ("GET", "/v1/models", {"Authorization": "Bearer other"}, None, 401, "Unauthorized"),
            ("GET", "/v1/embeddings", key, None, 404, "Not Found"),
            ("GET", path, key, None, 405, "Method Not Allowed"),
            ("GET", "/health", {"X": "a" * 100000}, None, 431, ""),
        ]
        errors = SERVING.split("### Errors")[1].split("### What")[0]
        for method, path, headers, body, status, kind in rows:
            got, text = self.server.request(method, path, body, headers)
            self.assertEqual(got, status, (body, text))
            self.assertRegex(errors, rf"(?m)^\| [\d, ]*{status}[\d, ]* \|.*{kind}")
            if status == 431:
                continue
            answer = json.loads(text)
            error = answer.get("error", answer.get("detail"))
            self.assertEqual(error["type"] if isinstance(error, dict) else error, kind)
            if isinstance(error, dict):
                self.assertEqual(error["code"], status)
                self.assertEqual(set(error), {"message", "type", "param", "code"})

    def test_metrics_count_what_was_asked(self):
        prompts = ["def fibonacci(n):", "import os", "class Stack:", "def fibonacci(n):"]
        usage = []
        for prompt in prompts:
            status, text = self.server.post("/v1/completions", model="phi-1", prompt=prompt, max_tokens=9,
                                            temperature=0, ignore_eos=True)
            self.assertEqual(status, 200, text)
            usage.append(json.loads(text)["usage"])
        self.assertEqual(self.server.post("/v1/completions", model="other", prompt="a")[0], 404)
        self.assertEqual(self.server.get("/v1/models")[0], 200)
        self.assertEqual(self.server.get("/made/up")[0], 404)
        n_prompt = sum(u["prompt_tokens"] for u in usage)
        self.assertEqual(sum(u["completion_tokens"] for u in usage), 9 * len(prompts))

        m = self.server.metrics()
        self.assertEqual(sum(m["http_requests_total"].values()), 7)
        self.assertEqual(one(m, "vllm:num_requests_running"), 0)
        self.assertEqual(one(m, "vllm:request_success_total", finished_reason="length", model_name="phi-1"), 4)
        self.assertEqual(one(m, "vllm:request_success_total", finished_reason="stop"), 0)
        self.assertEqual(one(m, "vllm:prompt_tokens_total", engine="0"), n_prompt)
        sources = m["vllm:prompt_tokens_by_source_total"]
        self.assertEqual(sum(sources.values()), n_prompt)
        self.assertEqual(one(m, "vllm:generation_tokens_total"), 36)
        self.assertEqual(one(m, "vllm:request_generation_tokens_sum"), 36)
        self.assertEqual(one(m, "vllm:request_prompt_tokens_sum"), n_prompt)
        self.assertEqual(one(m, "vllm:request_params_max_tokens_sum"), 36)
        self.assertEqual(one(m, "vllm:request_generation_tokens_bucket", le="5.0"), 0)
        self.assertEqual(one(m, "vllm:request_generation_tokens_bucket", le="10.0"), 4)
        for name in ("time_to_first_token_seconds", "e2e_request_latency_seconds", "request_decode_time_seconds"):
            self.assertEqual(one(m, f"vllm:{name}_count"), 4)
        whole = one(m, "vllm:e2e_request_latency_seconds_sum")
        parts = sum(one(m, f"vllm:request_{p}_time_seconds_sum") for p in ("queue", "prefill", "decode"))
        self.assertAlmostEqual(parts, whole, places=6)
        self.assertEqual(one(m, "vllm:inter_token_latency_seconds_count"), 4 * 8)
        self.assertEqual(one(m, "vllm:num_requests_waiting"), 0)
        self.assertEqual(one(m, "vllm:kv_cache_usage_perc"), 0)

        self.assertEqual(one(m, "http_requests_total", handler="/v1/completions", status="2xx"), 4)
        self.assertEqual(one(m, "http_requests_total", handler="/v1/completions", status="4xx"), 1)
        self.assertEqual(one(m, "http_requests_total", handler="/v1/models", method="GET"), 1)
        self.assertEqual(one(m, "http_requests_total", handler="none", status="4xx"), 1)
        self.assertFalse([k for k in m["http_requests_total"] if "/health" in k or "/metrics" in k])
        self.assertGreater(m["process_resident_memory_bytes"][""], 1e6)
        self.assertLess(abs(m["process_start_time_seconds"][""] - time.time()), 300)

    def test_who_has_an_answer_finds_it_counted(self):
        """At once, on another connection, which another of the server's threads may serve."""
        self.server.stop()
        self.server = Server("--enable-server-load-tracking", "--disable-uvicorn-access-log")
        for n in range(1, 101):
            stream = n % 2 == 0
            status, text = self.server.post("/v1/completions", prompt="a", max_tokens=1, stream=stream)
            load = json.loads(self.server.get("/load")[1])
            m = self.server.metrics()
            self.assertEqual(status, 200, text)
            self.assertEqual(load, {"server_load": 0})
            self.assertEqual(one(m, "http_requests_total", handler="/v1/completions"), n)
            self.assertEqual(one(m, "vllm:generation_tokens_total"), n)
            self.assertEqual(sum(m["vllm:request_success_total"].values()), n)
            self.assertEqual(one(m, "vllm:num_requests_running"), 0)
            self.assertEqual(one(m, "vllm:kv_cache_usage_perc"), 0)

    def test_counters_only_rise(self):
        before = self.server.metrics()
        self.server.post("/v1/completions", prompt="def f(", max_tokens=4)
        after = self.server.metrics()
        for name, series in before.items():
            if name.endswith(("_total", "_count", "_bucket", "_sum")):
                for labels, value in series.items():
                    self.assertGreaterEqual(after[name][labels], value, name)

    def test_log(self):
        self.server.post("/v1/completions", prompt="def f(", max_tokens=20, temperature=0, ignore_eos=True)
        self.server.get("/v1/%22%0d%0aINFO%20fake?x=%1b")
        lines = lambda: [m for m in map(STATS_LINE.search, self.server.log) if m]
        # The last line of activity is followed by one of zeros.
        self.server.wait(lambda: lines() and lines()[-1].groups()[:4] == ("0.0", "0.0", "0", "0"))
        self.assertGreaterEqual(len(lines()), 2)
        tokens = sum(float(l[2]) for l in lines()) * INTERVAL_S
        self.assertTrue(0 < tokens < 21, tokens)  # 20 when each interval was as long as it should be
        n = len(lines())
        time.sleep(3 * INTERVAL_S)
        self.assertEqual(len(lines()), n)  # silent when nothing happens
        log = "\n".join(self.server.log)
        self.assertRegex(log, r'(?m)127\.0\.0\.1:\d+ - "POST /v1/completions HTTP/1\.1" 200 OK$')
        self.assertRegex(log, r'(?m)127\.0\.0\.1:\d+ - "GET /v1/\S+ HTTP/1\.1" 404 Not Found$')
        self.assertNotRegex(log, r"(?m)^INFO fake")
        self.assertEqual(self.server.stop(), 0)

    def test_without_statistics(self):
        self.server.stop()
        self.server = Server("--disable-log-stats")
        self.server.post("/v1/completions", prompt="def f(", max_tokens=4)
        names = self.server.metrics()
        self.assertFalse([n for n in names if n.startswith("vllm:")])
        self.assertIn("http_requests_total", names)
        self.assertFalse([l for l in self.server.log if "Engine 000" in l])


def main():
    tests = unittest.defaultTestLoader.loadTestsFromTestCase(Watched)
    print(f"1..{tests.countTestCases()}", flush=True)
    failed = 0
    for number, test in enumerate(tests, 1):
        result = test.run()
        trouble = result.failures + result.errors
        failed += bool(trouble)
        print(f"{'not ' if trouble else ''}ok {number} {test.id().split('.')[-1]}")
        for _, text in trouble:
            print("".join(f"# {line}\n" for line in text.splitlines()), end="", flush=True)
    return 1 if failed else 0


sys.exit(main())
