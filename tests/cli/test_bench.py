#!/usr/bin/env python3
"""`phidelity bench` from outside: what the reports say agrees with itself and with the question.

PHIDELITY names the program, PHI_TESTS the tests' folder, PHI_MODELS the bundled models. Prints TAP.
"""
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import tap  # noqa: E402

PROGRAM = os.environ["PHIDELITY"]
RANDOM = Path(os.environ["PHI_TESTS"]) / "golden" / "phi-head64"  # has no tokenizer
TIED = Path(os.environ["PHI_TESTS"]) / "golden" / "phi3-gqa"  # in float32
CODE = Path(os.environ["PHI_MODELS"]) / "phi-tiny-code"
PERCENTAGES = ("10", "25", "50", "75", "90", "99")


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="phidelity-bench-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def bench(self, *arguments, code=0):
        result = subprocess.run([PROGRAM, "bench", *map(str, arguments)], capture_output=True, text=True, timeout=300)
        self.assertEqual(result.returncode, code, result.stderr)
        return result

    def fails(self, code, pattern, *arguments):
        result = self.bench(*arguments, code=code)
        error = re.sub(r"(?m)^phidelity: warning: .*\n", "", result.stderr)
        self.assertRegex(error, r"\Aphidelity: error: [^\n]*\n\Z")
        self.assertRegex(error, pattern)

    def write(self, name, text):
        path = self.folder / name
        path.write_text(text)
        return path


class CommandLine(Case):
    def test_help(self):
        names = re.findall(r"(?m)^  ([a-z]+)  ", self.bench("--help").stdout)
        self.assertGreaterEqual(len(names), 3)
        for name in names:
            text = self.bench(name, "--help").stdout
            self.assertTrue(text.startswith(f"usage: phidelity bench {name} "), text[:80])
            self.assertLessEqual(max(map(len, text.splitlines())), 100)

    def test_wrong_command_lines(self):
        for pattern, arguments in [
            ("what to measure is missing", []),
            ("unknown benchmark 'speed'", ["speed"]),
            ("MODEL", ["latency"]),
            ("--batch-size must be at least 1, not 0", ["latency", CODE, "--batch-size", 0]),
            ("unknown option --batchsize .did you mean --batch-size", ["latency", CODE, "--batchsize", 1]),
            ("unexpected argument 'B'", ["throughput", CODE, "B"]),
            ("--dataset-name must be one of random sharegpt", ["throughput", CODE, "--dataset-name", "x"]),
            ("--random-range-ratio", ["throughput", CODE, "--random-range-ratio", 1]),
            ("unexpected argument 'x'", ["kernels", "x"]),
            ("unexpected argument 'x'", ["serve", "x"]),
            ("--goodput must be KEY:MILLISECONDS", ["serve", "--goodput", "ttft:1", "itl:2"]),
            ("--goodput must be KEY:MILLISECONDS", ["serve", "--goodput", "ttft:x"]),
            ("--metric-percentiles must be from 0 to 100, not '101'", ["serve", "--metric-percentiles", "50,101"]),
            ("--percentile-metrics must be of ttft", ["serve", "--percentile-metrics", "ttft,x"]),
            ("--request-rate must be above 0", ["serve", "--request-rate", 0]),
            ("--max-concurrency must be at least 1", ["serve", "--max-concurrency", 0]),
            ("--header must be KEY=VALUE, not 'x'", ["serve", "--header", "a=b", "x"]),
            ("--extra-body must be JSON", ["serve", "--extra-body", "{"]),
        ]:
            with self.subTest(pattern):
                self.fails(2, pattern, *arguments)

    def test_failures(self):
        self.fails(1, "no-such-folder", "latency", "no-such-folder")
        self.fails(1, "dataset-path FILE is missing", "throughput", CODE, "--dataset-name", "custom")
        self.fails(1, "none.jsonl", "throughput", CODE, "--dataset-name", "custom", "--dataset-path", "none.jsonl")
        bad = self.write("bad.jsonl", '{"prompt": "a"}\n{"text": "b"}\n')
        self.fails(1, "bad.jsonl: line 2: 'prompt' is missing", "throughput", CODE, "--dataset-name", "custom",
                   "--dataset-path", bad)
        self.fails(1, "max_tokens|context", "latency", CODE, "--input-len", 100000)
        self.fails(1, "no/folder", "throughput", CODE, "--num-prompts", 1, "--input-len", 4, "--output-len", 2,
                   "--output-json", self.folder / "no/folder/out.json")


class Latency(Case):
    def test_report(self):
        path = self.folder / "out.json"
        text = self.bench("latency", RANDOM, "--input-len", 12, "--output-len", 5, "--batch-size", 3,
                          "--num-iters-warmup", 1, "--num-iters", 4, "--output-json", path).stdout
        values = json.loads(path.read_text())
        self.assertEqual(len(values["latencies"]), 4)
        self.assertAlmostEqual(values["avg_latency"], sum(values["latencies"]) / 4)
        self.assertEqual(tuple(values["percentiles"]), PERCENTAGES)
        ordered = list(values["percentiles"].values())
        self.assertEqual(ordered, sorted(ordered))
        self.assertLessEqual(min(values["latencies"]), ordered[0])
        self.assertIn(f"Avg latency: {values['avg_latency']:.6f} seconds\n", text)
        for percentage, value in values["percentiles"].items():
            self.assertIn(f"\n{percentage}% percentile latency: {value:.6f} seconds\n", text)
        for key in ("decode_tok_s", "prefill_tok_s", "bytes_per_token", "read_bandwidth_gbs", "decode_bandwidth_ratio",
                    "prefill_peak_ratio", "arithmetic_peak_gflops"):
            self.assertGreater(values[key], 0, key)
        self.assertLess(values["prefill_computed_peak_ratio"], values["prefill_peak_ratio"])
        # A run's 3 x 5 tokens cannot come faster than decode says.
        self.assertLess(12 / values["decode_tok_s"], max(values["latencies"]))

    def test_bytes_of_a_token(self):
        """All matrices but the embedding, shared by the batch, and the keys and values before the token."""
        c = json.loads((RANDOM / "config.json").read_text())
        hidden, heads = c["hidden_size"], c["num_attention_heads"] * c["head_dim"]
        weights = c["num_hidden_layers"] * (4 * hidden * heads + 2 * hidden * c["intermediate_size"]) \
            + c["vocab_size"] * hidden
        kv = 2 * c["num_hidden_layers"] * heads
        self.assertEqual(c["dtype"], "float16")
        for batch_size in 1, 4:
            self.assertAlmostEqual(self.bytes_per_token(RANDOM, batch_size), 2 * (weights / batch_size + kv * 12.5))
        # Four bytes of scale for each row: q, k, v, dense, fc1, fc2 and the head.
        rows = c["num_hidden_layers"] * (3 * heads + 2 * hidden + c["intermediate_size"]) + c["vocab_size"]
        self.assertAlmostEqual(self.bytes_per_token(RANDOM, 2, "--quantization", "w8a8"),
                               (weights + 4 * rows) / 2 + 2 * kv * 12.5)

    def test_tied_head(self):
        """The embedding is read where it is the head, and not where the head is a quantised copy."""
        c = json.loads((TIED / "config.json").read_text())
        self.assertTrue(c["tie_word_embeddings"])
        head = c["vocab_size"] * c["hidden_size"]
        with_copy = self.bytes_per_token(TIED, 1, "--quantization", "w8a8")
        without = self.bytes_per_token(TIED, 1, "--quantization", "w8a8", "--no-quantize-lm-head")
        self.assertEqual(without - with_copy, 4 * head - head - 4 * c["vocab_size"])

    def bytes_per_token(self, model, batch_size, *arguments):
        path = self.folder / "out.json"
        self.bench("latency", model, "--input-len", 10, "--output-len", 5, "--batch-size", batch_size,
                   "--num-iters-warmup", 0, "--num-iters", 1, "--output-json", path, *arguments)
        return json.loads(path.read_text())["bytes_per_token"]

    def test_one_token_is_no_decode(self):
        path = self.folder / "out.json"
        self.bench("latency", "--model", RANDOM, "--input-len", 3, "--output-len", 1, "--batch-size", 1,
                   "--num-iters-warmup", 0, "--num-iters", 1, "--output-json", path)
        self.assertEqual(json.loads(path.read_text())["decode_tok_s"], 0)


class Throughput(Case):
    def run_one(self, *arguments):
        path = self.folder / "out.json"
        text = self.bench("throughput", *arguments, "--output-json", path).stdout
        match = re.fullmatch(
            r"Throughput: (\S+) requests/s, (\S+) total tokens/s, (\S+) output tokens/s\n"
            r"Total num prompt tokens:  (\d+)\nTotal num output tokens:  (\d+)\n", text)
        self.assertTrue(match, text)
        values = json.loads(path.read_text())
        n_prompt, n_output = int(match[4]), int(match[5])
        self.assertEqual(values["total_num_tokens"], n_prompt + n_output)
        self.assertAlmostEqual(values["requests_per_second"], values["num_requests"] / values["elapsed_time"])
        self.assertAlmostEqual(values["tokens_per_second"], values["total_num_tokens"] / values["elapsed_time"])
        self.assertEqual(match[1], f"{values['requests_per_second']:.2f}")
        self.assertEqual(match[2], f"{values['tokens_per_second']:.2f}")
        return values["num_requests"], n_prompt, n_output

    def test_random(self):
        self.assertEqual(self.run_one(RANDOM, "--num-prompts", 7, "--input-len", 9, "--output-len", 4), (7, 63, 28))
        self.assertEqual(self.run_one(RANDOM, "--num-prompts", 2, "--random-input-len", 9, "--random-output-len", 4,
                                      "--random-prefix-len", 5, "--n", 2), (2, 28, 16))

    def test_drawn_lengths(self):
        n, n_prompt, n_output = self.run_one(RANDOM, "--num-prompts", 20, "--input-len", 10, "--output-len", 10,
                                             "--random-range-ratio", 0.5)
        self.assertEqual(n, 20)
        for total in n_prompt, n_output:
            self.assertTrue(100 <= total <= 300 and total != 200, total)

    def test_prefix_repetition(self):
        self.assertEqual(self.run_one(RANDOM, "--dataset-name", "prefix_repetition", "--num-prompts", 6,
                                      "--prefix-repetition-prefix-len", 6, "--prefix-repetition-suffix-len", 3,
                                      "--prefix-repetition-num-prefixes", 2, "--prefix-repetition-output-len", 2),
                         (6, 54, 12))

    def tokens(self, text):
        result = subprocess.run([PROGRAM, "tokenize", str(CODE), "-p", text], capture_output=True, text=True, check=True)
        return len(re.findall(r"\d+", result.stdout))

    def test_custom(self):
        prompts = ["def add(a, b):", "import os", "class A:\n    pass"]
        lines = [json.dumps({"prompt": p, "output_tokens": i + 2}) for i, p in enumerate(prompts)]
        path = self.write("prompts.jsonl", "\n".join(lines))
        n_tokens = sum(map(self.tokens, prompts))
        arguments = [CODE, "--dataset-name", "custom", "--dataset-path", path]
        self.assertEqual(self.run_one(*arguments, "--num-prompts", 3, "--custom-output-len", 0), (3, n_tokens, 9))
        self.assertEqual(self.run_one(*arguments, "--num-prompts", 6, "--output-len", 4), (6, 2 * n_tokens, 24))
        self.assertEqual(self.run_one(*arguments, "--num-prompts", 6, "--no-oversample", "--output-len", 4),
                         (3, n_tokens, 12))
        first = self.run_one(*arguments, "--num-prompts", 1, "--no-shuffle", "--output-len", 4)
        self.assertEqual(first, (1, self.tokens(prompts[0]), 4))

    def test_sharegpt(self):
        turn = lambda who, text: {"from": who, "value": text}
        question, answer = "def add(a, b): return a + b", "def f(x):\n    return x + 1\n"
        path = self.write("talks.json", json.dumps([
            {"id": "a", "conversations": [turn("human", question), turn("gpt", answer), turn("human", "more")]},
            {"id": "too short", "conversations": [turn("human", "x"), turn("gpt", answer)]},
            {"id": "one turn", "conversations": [turn("human", question)]},
        ]))
        arguments = [CODE, "--dataset-name", "sharegpt", "--dataset-path", path, "--num-prompts", 4]
        self.assertEqual(self.run_one(*arguments), (4, 4 * self.tokens(question), 4 * self.tokens(answer)))
        self.assertEqual(self.run_one(*arguments, "--sharegpt-output-len", 3), (4, 4 * self.tokens(question), 12))


def event(data):
    return b"data: " + (data if isinstance(data, bytes) else json.dumps(data).encode()) + b"\n\n"


def text(piece, finish=None):
    return event({"choices": [{"index": 0, "text": piece, "finish_reason": finish}]})


def content(piece, finish=None, **more):
    return event({"choices": [{"index": 0, "delta": {"content": piece, **more}, "finish_reason": finish}]})


USAGE = {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 4}}
DONE = event(b"[DONE]")
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"


class Fake:
    """A server that answers requests with scripts, in turn: bytes to send and seconds to wait. It keeps what it was
    asked."""

    def __init__(self, test, *scripts):
        self.scripts, self.asked = list(scripts), []
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        self.lock = threading.Lock()
        threading.Thread(target=self.accept, daemon=True).start()
        test.addCleanup(self.socket.close)

    def accept(self):
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            threading.Thread(target=self.answer, args=[connection], daemon=True).start()

    def answer(self, connection):
        with connection:
            request = b""
            while b"\r\n\r\n" not in request:
                request += connection.recv(65536)
            head, _, body = request.partition(b"\r\n\r\n")
            length = re.search(rb"(?i)content-length: (\d+)", head)
            while length and len(body) < int(length[1]):
                body += connection.recv(65536)
            with self.lock:
                self.asked.append((head.decode(), json.loads(body) if body else None))
                script = self.scripts.pop(0)
            try:
                for step in script:
                    time.sleep(step) if isinstance(step, float) else connection.sendall(step)
            except OSError:
                pass


class Serve(Case):
    """Against servers whose behaviour is known."""

    METRICS = ("Time to First Token", "Time per Output Token (excl. 1st token)", "Inter-token Latency",
               "End-to-end Latency")

    def load(self, port, *arguments, code=0):
        path = self.folder / "result.json"
        result = self.bench("serve", "--port", port, "--save-result", "--save-detailed", "--result-filename", path,
                            *arguments, code=code)
        return result.stdout, json.loads(path.read_text())

    def prompts(self, *lines):
        path = self.write("prompts.jsonl", "\n".join(json.dumps({"prompt": line}) for line in lines))
        return ["--model", "m", "--dataset-name", "custom", "--dataset-path", path, "--no-shuffle", "--num-prompts",
                len(lines), "--custom-output-len", 4]

    def test_report(self):
        """Chunks that come 0.2 s and 0.1 s apart, the last of them with two tokens."""
        script = [STREAM, 0.3, text("a"), 0.2, text("b"), 0.1, text("cd", "length"), event(USAGE), DONE]
        fake = Fake(self, script, script)
        report, values = self.load(fake.port, *self.prompts("x", "y"), "--max-concurrency", 1, "--metric-percentiles",
                                   "50,99.9", "--percentile-metrics", "ttft,tpot,itl,e2el", "--goodput", "ttft:1", "tpot:9000")
        lines = report.splitlines()
        self.assertEqual(lines[0], " Serving Benchmark Result ".center(50, "="))
        self.assertEqual(lines[-1], "=" * 50)
        shown = dict(re.fullmatch(r"(.{40}) (.{10})", line).groups() for line in lines[1:-1] if line[0] not in "-=")
        shown = {name.strip(): float(value) for name, value in shown.items()}
        for title in self.METRICS:
            self.assertTrue([line for line in lines if line.strip("-") == title and len(line) == 50], title)
        self.assertEqual((shown["Successful requests:"], shown["Failed requests:"]), (2, 0))
        self.assertEqual((values["completed"], values["failed"]), (2, 0))
        self.assertEqual((shown["Total input tokens:"], shown["Total generated tokens:"]), (14, 8))
        self.assertEqual(shown["Maximum request concurrency:"], 1)
        self.assertEqual(shown["Peak concurrent requests:"], 1)
        self.assertEqual(shown["Request goodput (req/s):"], 0)
        self.assertNotIn("Request rate configured (RPS):", shown)
        seconds = values["duration"]
        for name, total in ("request_throughput", 2), ("output_throughput", 8), ("total_token_throughput", 22):
            self.assertAlmostEqual(values[name], total / seconds)
        # What comes late makes the gaps after it shorter: only times from the start have a least value.
        for name, least in ("ttft", 300), ("tpot", 0), ("itl", 0), ("e2el", 600):
            for kind in f"mean_{name}_ms", f"median_{name}_ms", f"p50_{name}_ms", f"p99.9_{name}_ms":
                self.assertGreater(values[kind], least - 1 if least else 0, kind)
            self.assertAlmostEqual(shown[f"P50 {name.upper()} (ms):"], values[f"p50_{name}_ms"], delta=0.006)
            self.assertIn(f"std_{name}_ms", values)
        self.assertAlmostEqual(values["mean_tpot_ms"], (values["mean_e2el_ms"] - values["mean_ttft_ms"]) / 3)
        self.assertEqual(values["generated_texts"], ["abcd", "abcd"])
        self.assertEqual(list(map(len, values["itls"])), [2, 2])
        self.assertEqual((values["input_lens"], values["output_lens"], values["errors"]), ([7, 7], [4, 4], ["", ""]))
        self.assertGreaterEqual(values["start_times"][1], values["latencies"][0])

    def test_requests(self):
        fake = Fake(self, *[[STREAM, text("a", "stop"), DONE]] * 3)
        self.load(fake.port, *self.prompts("p", "q"), "--num-warmups", 1, "--max-concurrency", 1, "--temperature", 0,
                  "--top-k", 3, "--ignore-eos", "--extra-body", '{"seed": 5, "stream_options": null}', "--header", "X-A=b=c")
        self.assertEqual([body["prompt"] for _, body in fake.asked], ["p", "p", "q"])
        head, body = fake.asked[0]
        self.assertTrue(head.startswith("POST /v1/completions HTTP/1.1\r\n"))
        self.assertIn("\r\nX-A: b=c", head)
        self.assertEqual(body, {"model": "m", "prompt": "p", "max_tokens": 4, "stream": True, "stream_options": None,
                                "ignore_eos": True, "temperature": 0.0, "top_k": 3, "seed": 5})

    def test_chat(self):
        """The role is no token, nor is the finish reason; without usage, chunks are counted."""
        script = [STREAM, content("", role="assistant"), 0.2, content("a"), content("b"), 0.2, content("", "stop"), DONE]
        fake = Fake(self, script)
        _, values = self.load(fake.port, *self.prompts("x"), "--backend", "openai-chat")
        head, body = fake.asked[0]
        self.assertTrue(head.startswith("POST /v1/chat/completions "))
        self.assertEqual(body["messages"], [{"role": "user", "content": "x"}])
        self.assertEqual(body["max_completion_tokens"], 4)
        self.assertEqual(values["total_output_tokens"], 2)
        self.assertEqual(list(map(len, values["itls"])), [1])
        self.assertGreater(values["mean_ttft_ms"], 190)
        self.assertGreater(values["latencies"][0] - values["ttfts"][0], 0.19)

    def test_failures_are_counted_and_named(self):
        whole = STREAM.replace(b"Connection: close", b"Content-Length: 1000")
        fake = Fake(self,
                    [STREAM, text("a"), text("b")],
                    [whole, text("a")],
                    [b"HTTP/1.1 503 Busy\r\nContent-Length: 37\r\n\r\n" + b'{"error": {"message": "queue full"}} '],
                    [b"HTTP/1.1 500 Oh\r\nContent-Length: 3\r\n\r\nbad"],
                    [STREAM, text("a"), event({"error": {"message": "no more"}}), DONE],
                    [STREAM, event(b"{not json"), DONE],
                    [],
                    [STREAM, b"data: ", b'{"choices": [{"text": "\\u00e9"', 0.1, b', "finish_reason": "stop"}]}\r\n', b"\r\n"])
        report, values = self.load(fake.port, *self.prompts(*"abcdefgh"), "--max-concurrency", 1)
        self.assertEqual((values["completed"], values["failed"]), (1, 7))
        for error, pattern in zip(values["errors"], [
                "the stream broke off after 2 chunks", "in the middle of the stream", "^status 503: queue full$",
                "^status 500: bad$", "error in the stream: no more", "chunk: not valid JSON", ".", "^$"]):
            self.assertRegex(error, pattern)
        self.assertIn("Failed requests during benchmark run detected (capping to 10):\nError 0: the stream broke off after "
                      "2 chunks\nError 1: ", report)
        self.assertIn("\nError 2: status 503: queue full\n", report)
        self.assertEqual(values["generated_texts"][7], "é")
        self.assertEqual(values["output_lens"], [0] * 7 + [1])

    def test_all_failed(self):
        fake = Fake(self, [])
        result = self.bench("serve", "--port", fake.port, *self.prompts("a"), code=1)
        self.assertRegex(result.stderr, r"\Aphidelity: error: all requests failed\n\Z")
        with socket.create_server(("127.0.0.1", 0)) as closed:
            port = closed.getsockname()[1]
        self.fails(1, "/v1/models: .*connect", "serve", "--port", port)

    def test_model_of_the_server(self):
        listing = json.dumps({"data": [{"id": "org/tiny", "root": str(CODE)}]}).encode()
        head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(listing)
        fake = Fake(self, [b"HTTP/1.1 503 Loading\r\nContent-Length: 0\r\n\r\n"], [head + listing],
                    [STREAM, text("a", "length"), DONE])
        result = self.bench("serve", "--port", fake.port, "--ready-check-timeout-sec", 20, "--num-prompts", 1,
                            "--input-len", 11, "--output-len", 1, "--append-result", "--result-dir", self.folder,
                            "--label", "mine", "--metadata", "version=1.2=3", "a=")
        self.assertRegex(result.stdout, r"(?m)^Total input tokens: +11 *$")
        body = fake.asked[2][1]
        self.assertEqual((body["model"], len(body["prompt"]), body["max_tokens"]), ("org/tiny", 11, 1))
        path, = self.folder.glob("mine-infqps-tiny-*.json")
        values = json.loads(path.read_text().splitlines()[0])
        self.assertEqual((values["model_id"], values["tokenizer_id"], values["version"], values["a"]),
                         ("org/tiny", str(CODE), "1.2=3", ""))

    def test_rate(self):
        n, rate = 12, 20
        fake = Fake(self, *[[STREAM, text("a", "stop"), DONE]] * n)
        report, values = self.load(fake.port, *self.prompts(*"abcdefghijkl"), "--request-rate", rate)
        self.assertRegex(report, r"(?m)^Request rate configured \(RPS\): +20.00 *$")
        starts = values["start_times"]
        self.assertEqual(starts, sorted(starts))
        self.assertGreater(starts[-1], n / rate - 0.3)  # a busy machine may be late, never early
        self.assertGreater(len({round(b - a, 2) for a, b in zip(starts, starts[1:])}), 3)
        self.assertEqual(values["request_rate"], rate)

    def test_own_server(self):
        """`phidelity serve` and its clients count the same tokens."""
        server = subprocess.Popen([PROGRAM, "serve", CODE, "--host", "127.0.0.1", "--port", "0"], stderr=subprocess.PIPE,
                                  text=True)
        self.addCleanup(server.communicate)
        self.addCleanup(server.terminate)
        port = next(int(m[1]) for m in (re.search(r"http://127.0.0.1:(\d+)", line) for line in server.stderr) if m)
        next(line for line in server.stderr if "startup complete" in line)
        threading.Thread(target=server.stderr.read, daemon=True).start()
        _, values = self.load(port, "--num-prompts", 6, "--input-len", 20, "--output-len", 5, "--ignore-eos")
        self.assertEqual((values["completed"], values["total_input_tokens"], values["total_output_tokens"]), (6, 120, 30))
        self.assertEqual(values["output_lens"], [5] * 6)
        self.assertEqual(values["model_id"], str(CODE))


class ReportRows(Case):
    def test_table(self):
        script = Path(os.environ["PHI_TESTS"]).parent / "bench" / "report_rows.py"
        result = subprocess.run([sys.executable, str(script), str(CODE), "--program", PROGRAM, "--rounds", "1", "--formats",
                                 "float16,w8a8"], capture_output=True, text=True, timeout=300)
        self.assertEqual(result.returncode, 0, result.stderr)
        rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in result.stdout.splitlines()[2:]]
        ours = [row for row in rows if not row[0].startswith("NPU")]
        self.assertEqual([row[:3] for row in ours], [[name, *shape] for shape in (["9", "32"], ["9", "64"], ["9", "128"],
                                                                                  ["140", "128"])
                                                     for name in ("float16", "w8a8")])
        self.assertEqual([row for row in rows if row not in ours], [["NPU, as reported", "9", "64", "25.9", "2.47", "2.71"]])
        for row in ours:
            self.assertGreater(float(row[3]), 0)
            self.assertGreater(float(row[5]), 0)


class Startup(Case):
    def test_report(self):
        path = self.folder / "out.json"
        text = self.bench("startup", RANDOM, "--num-iters-cold", 0, "--num-iters-warm", 3, "--max-model-len", 64, "--dtype",
                          "float32", "--no-enable-prefix-caching", "--output-json", path).stdout
        values = json.loads(path.read_text())
        times = values["warm_startup_times"]
        self.assertEqual(len(times), 3)
        self.assertAlmostEqual(values["avg_warm_startup_time"], sum(times) / 3)
        self.assertEqual(tuple(values["warm_startup_percentiles"]), PERCENTAGES)
        self.assertTrue(0 < min(times) <= values["warm_startup_percentiles"]["50"] <= max(times))
        self.assertNotIn("COLD", text)
        self.assertIn(f"\nWARM STARTUP:\nAvg startup time: {values['avg_warm_startup_time']:.3f} seconds\n", text)
        self.assertIn(f"\nPeak resident memory: {values['peak_rss_bytes'] / 2**20:.1f} MiB ", text)
        self.assertGreater(values["peak_rss_file_bytes"], 0)
        self.assertGreater(values["peak_rss_other_bytes"], 0)

    def test_cold(self):
        """Either the files could be dropped, or the report says that they could not."""
        model = self.folder / "model"
        shutil.copytree(RANDOM, model)
        path = self.folder / "out.json"
        text = self.bench("startup", model, "--num-iters-cold", 2, "--num-iters-warm", 1, "--output-json", path).stdout
        values = json.loads(path.read_text())
        if "COLD STARTUP: not measured" in text:
            self.assertNotIn("cold_startup_times", values)
        else:
            self.assertIn("\nCOLD STARTUP:\nAvg startup time: ", text)
            self.assertEqual(len(values["cold_startup_times"]), 2)

    def test_a_run_that_fails(self):
        result = self.bench("startup", RANDOM, "--num-iters-cold", 0, "--max-model-len", 1000000, code=1)
        self.assertRegex(result.stderr, r"\nphidelity: error: the process ended with code 1\n\Z")


class Kernels(Case):
    def test_lines(self):
        text = self.bench("kernels", "--filter", "ref rms_norm", "--threads", 1).stdout
        self.assertRegex(text, r"\A(ref rms_norm \S+ +1 thread +[\d.]+ us +[\d.]+ of +[\d.]+ GB/s +\d+%.*\n)+\Z")


if __name__ == "__main__":
    tap.main()
