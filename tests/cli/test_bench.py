#!/usr/bin/env python3
"""`phidelity bench` from outside: what the reports say agrees with itself and with the question.

PHIDELITY names the program, PHI_TESTS the tests' folder, PHI_MODELS the bundled models. Prints TAP.
"""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

PROGRAM = os.environ["PHIDELITY"]
RANDOM = Path(os.environ["PHI_TESTS"]) / "golden" / "phi-head64"  # has no tokenizer
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
            path = self.folder / "out.json"
            self.bench("latency", RANDOM, "--input-len", 10, "--output-len", 5, "--batch-size", batch_size,
                       "--num-iters-warmup", 0, "--num-iters", 1, "--output-json", path)
            bytes_per_token = json.loads(path.read_text())["bytes_per_token"]
            self.assertAlmostEqual(bytes_per_token, 2 * (weights / batch_size + kv * 12.5))

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


class Kernels(Case):
    def test_lines(self):
        text = self.bench("kernels", "--filter", "ref rms_norm", "--threads", 1).stdout
        self.assertRegex(text, r"\A(ref rms_norm \S+ +1 thread +[\d.]+ us +[\d.]+ of +[\d.]+ GB/s +\d+%.*\n)+\Z")


class Tap(unittest.TestResult):
    """Prints each case as a line of TAP."""

    n = 0
    failed = False  # the case under way

    def startTest(self, test):
        super().startTest(test)
        self.failed = False

    def line(self, word, test, note=""):
        self.n += 1
        print(f"{word} {self.n} - {test.id().split('.', 1)[1]}{note}", flush=True)

    def addSuccess(self, test):
        self.line("ok", test)

    def addSkip(self, test, reason):
        self.line("ok", test, f" # SKIP {reason}")

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.failed = True
        print(self._exc_info_to_string(err, test), file=sys.stderr, flush=True)

    addError = addFailure

    def addSubTest(self, test, subtest, err):
        if err:
            print(subtest.id(), file=sys.stderr)
            self.addFailure(test, err)

    def stopTest(self, test):
        super().stopTest(test)
        if self.failed:
            self.line("not ok", test)


if __name__ == "__main__":
    suite = unittest.defaultTestLoader.loadTestsFromModule(sys.modules[__name__])
    print(f"1..{suite.countTestCases()}")
    result = Tap()
    suite.run(result)
    sys.exit(0 if result.wasSuccessful() else 1)
