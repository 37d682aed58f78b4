#!/usr/bin/env python3
"""python -m phidelity.nightly: what a matrix may say, runs with cells that fail, crash and hang, what the reports and
the next run make of them.

PYTHONPATH names the built package, PHIDELITY the program, PHI_MODELS the bundled models. Prints TAP.
"""
import html.parser
import io
import json
import os
import re
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import tap

from phidelity.nightly.__main__ import main
from phidelity.nightly.compare import compare
from phidelity.nightly.matrix import read_matrix
from phidelity.nightly.results import CellResult, Results, StepResult
from phidelity.nightly.schema import MatrixError

PROGRAM = os.environ["PHIDELITY"]
CODE = Path(os.environ["PHI_MODELS"]) / "phi-tiny-code"

# The program, but for two dtypes: one crashes, one hangs after leaving its process id.
STUB = f"""#!/bin/sh
case "$*" in
*check-accuracy*--dtype=bfloat16*) echo "about to crash" >&2; kill -SEGV $$ ;;
*--dtype=float16*) echo "about to hang" >&2; echo $$ >> "$(dirname "$0")/hanging"; sleep 1000 ;;
*) exec '{PROGRAM}' "$@" ;;
esac
"""

MATRIX = """
title: "A <small> run"
models:
- {path: MODEL, name: good, reference: good.safetensors}
- {path: MODEL, name: wrong, reference: wrong.safetensors}
- {path: MODEL, name: crashes, reference: good.safetensors, dtypes: [bfloat16]}
dtypes: [float32]
quantizations: [none, w8a8]
skip: [wrong/*/w8a8, crashes/*/w8a8]
contexts: [128]
limits: {float32: {min_top1: 100, max_kl: 1.0e-7}, w8a8: {min_top1: 50, min_cosine: 0.9, max_kl: 1}}
time_limit_s: 600
latency: {input_len: 8, output_len: 4, num_iters: 1, num_iters_warmup: 0}
startup: {num_iters_cold: 0, num_iters_warmup: 0, num_iters_warm: 1}
align: {mode: short, max_tokens: 4}
"""
NAMES = ["good/float32/none/128", "good/float32/w8a8/128", "wrong/float32/none/128", "crashes/bfloat16/none/128"]


def one_model(text):
    return "models: [{path: MODEL}]\n" + text


# Text of a matrix, the whole error behind "FILE: " or a pattern of it. MODEL: a checkpoint's folder.
REFUSED = [
    ("", r"the file: expected a mapping with the keys title, models, .*, got null"),
    ("[1]", r"the file: expected a mapping .*, got \[1\]"),
    ("title: x", r"the file: 'models' is missing"),
    ("models: []", r"models: expected a list, as \[a, b\], got \[\]"),
    ("models: MODEL", r"models: expected a list"),
    ("models: [{name: x}]", r"models\[0\]: 'path' is missing"),
    ("models: [{path: 5}]", r"models\[0\]\.path: expected text, got 5"),
    ("models: [{path: nowhere}]", r"models\[0\]\.path: .*nowhere is no checkpoint folder: it holds no config.json"),
    ("models: [{path: MODEL, refrence: x}]", r"models\[0\]: there is no key 'refrence' \(perhaps 'reference' is meant\); "
                                             r"allowed: path, name, reference, .*"),
    ("models: [{path: MODEL, reference: x}]", r"models\[0\]\.reference: there is no file .*/x"),
    ("models: [{path: MODEL, gate: x}]", r"models\[0\]\.gate: there is no file .*/x"),
    ("models: [{path: MODEL, name: a/b}]", r"models\[0\]\.name: expected letters, digits, '\.', '_' and '-', got \"a/b\""),
    ("models: [{path: MODEL}, {path: MODEL, contexts: [64]}]",
     r"models\[1\]: another model is named 'phi-tiny-code' too: give it a name of its own"),
    (one_model("dtypes: [float64]"), r"dtypes\[0\]: expected one of auto, float32, bfloat16, float16, got \"float64\""),
    (one_model("dtypes: float32"), r"dtypes: expected a list, as \[a, b\], got \"float32\""),
    (one_model("dtypes: [float32, float32]"), r"dtypes\[1\]: \"float32\" is there already"),
    (one_model("quantizations: [w4]"), r"quantizations\[0\]: expected none, w8a8, w4a8, or w4a8-g32 .*, got \"w4\""),
    (one_model("quantizations: [null]"), r"quantizations\[0\]: expected none, .*, got null"),
    (one_model("quantizations: [w8a8]"), r"limits: 'w8a8' is missing: .*w8a8: \{min_top1: 95, .* \(for models\[0\]\)"),
    (one_model("limits: {w8a8: {max_k: 1}}"), r"limits\.w8a8: there is no key 'max_k' \(perhaps 'max_kl' is meant\); "
                                              r"allowed: min_top1, min_cosine, max_kl"),
    (one_model("limits: {int8: {}}"), r"limits \(its key\): expected a dtype or quantisation: .*, got \"int8\""),
    (one_model("limits: {float32: {min_top1: 101}}"), r"limits\.float32\.min_top1: expected a number from 0 to 100, got 101"),
    (one_model("contexts: [8]"), r"contexts\[0\]: expected 'auto' or a whole number of at least 16, got 8"),
    (one_model("contexts: [1.5]"), r"contexts\[0\]: expected 'auto' or a whole number .*, got 1\.5"),
    (one_model("contexts: [64]"), r"latency: 192 tokens of prompt and answer do not fit into the context of 64"),
    (one_model("latency: {input_len: full}"), r"latency\.input_len: 'full' needs numbers as contexts"),
    (one_model("latency: {input-len: 5}"), r"latency: there is no key 'input-len' \(perhaps 'input_len' is meant\)"),
    (one_model("latency: {num_iters: 0}"), r"latency\.num_iters: expected a whole number of at least 1, got 0"),
    (one_model("latency: {num_iters: true}"), r"latency\.num_iters: expected a whole number of at least 1, got true"),
    (one_model("steps: [check, run]"), r"steps\[1\]: expected one of check, start, align, eval, latency, startup, got \"run\""),
    (one_model("flags: [threads=2]"), r"flags\[0\]: expected an option, as --threads=2, got \"threads=2\""),
    (one_model("time_limit_s: soon"), r"time_limit_s: expected a number from 1 to 1e\+06, got \"soon\""),
    (one_model("eval: {at_least: 1}"), r"eval\.at_least: expected true or false, got 1"),
    (one_model("changes: {sped: 1}"), r"changes: there is no key 'sped' \(perhaps 'speed' is meant\)"),
    (one_model("skip: ['*']"), r"skip: it leaves no cell"),
    (one_model("align: {prompts: x}"), r"align\.prompts: there is no file .*/x"),
    (one_model("title: 'x"), r"2: .*"),
]


class Folder(unittest.TestCase):
    """A folder with the stub, a reference that this program made, and one that it did not."""

    @classmethod
    def setUpClass(cls):
        cls.holder = tempfile.TemporaryDirectory(prefix="phidelity-nightly-")
        cls.folder = Path(cls.holder.name)
        cls.stub = cls.folder / "stub"
        cls.stub.write_text(STUB)
        cls.stub.chmod(0o755)
        subprocess.run([PROGRAM, "logits", CODE, "-p", "def fibonacci(n):\n    if n", "--dtype", "float32", "--out",
                        cls.folder / "good.safetensors"], check=True, capture_output=True)
        cls.spoil()

    @classmethod
    def tearDownClass(cls):
        cls.holder.cleanup()

    @classmethod
    def spoil(cls):
        """wrong.safetensors: the logits of good.safetensors, but for other ids."""
        data = bytearray((cls.folder / "good.safetensors").read_bytes())
        n_header = struct.unpack("<Q", data[:8])[0]
        begin, end = json.loads(data[8:8 + n_header])["input_ids"]["data_offsets"]
        data[8 + n_header + begin:8 + n_header + end] = bytes(end - begin)
        (cls.folder / "wrong.safetensors").write_bytes(data)

    def matrix(self, text=MATRIX, name="matrix.yaml"):
        path = self.folder / name
        path.write_text(text.replace("MODEL", str(CODE)))
        return path

    def nightly(self, *arguments):
        """(exit code, standard output, standard error)"""
        out, err = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            code = main([*map(str, arguments), "--program", str(self.stub)])
        return code, out.getvalue(), err.getvalue()


class Matrices(Folder):
    def test_refused(self):
        for text, pattern in REFUSED:
            with self.subTest(text), self.assertRaises(MatrixError) as caught:
                read_matrix(str(self.matrix(text)))
            self.assertRegex(str(caught.exception), f"^{re.escape(str(self.folder / 'matrix.yaml'))}: ?{pattern}")

    def test_not_utf8(self):
        (self.folder / "bad.yaml").write_bytes(b"title: \xff")
        with self.assertRaisesRegex(MatrixError, "bad.yaml:1: not UTF-8"):
            read_matrix(str(self.folder / "bad.yaml"))

    def test_read(self):
        matrix = read_matrix(str(self.matrix()))
        self.assertEqual([cell.name for cell in matrix.cells], NAMES)
        self.assertEqual(matrix.cells[1].model_flags(), ["--dtype=float32", "--quantization=w8a8"])
        self.assertEqual(matrix.cells[1].limits, {"min_top1": 50, "min_cosine": 0.9, "max_kl": 1})
        self.assertEqual(matrix.cells[3].limits, {})
        self.assertEqual(matrix.latency, {"input_len": 8, "output_len": 4, "batch_size": 1, "num_iters": 1,
                                          "num_iters_warmup": 0})

    def test_groups_and_own_keys(self):
        matrix = read_matrix(str(self.matrix("""
models:
- {path: MODEL, quantizations: [w4a8-g32, w4a8-g64, w4a8], contexts: [auto], flags: [--seed=1],
    limits: {w4a8: {max_kl: 2}}}
limits: {w4a8: {max_kl: 3}, w4a8-g64: {max_kl: 4}}
flags: [--threads=1]
""".replace(",\n    ", ", "))))
        self.assertEqual([cell.limits["max_kl"] for cell in matrix.cells], [2, 4, 2])
        self.assertEqual(matrix.cells[0].model_flags(), ["--dtype=auto", "--quantization=w4a8", "--quant-group-size=32",
                                                         "--threads=1", "--seed=1"])
        self.assertEqual(matrix.cells[0].context_flags(), [])

    def test_command_line(self):
        for arguments, pattern in (([self.folder / "none.yaml"], "none.yaml"),
                                   ([self.matrix("title: 1", "bad.yaml")], "bad.yaml: the file: 'models' is missing"),
                                   ([self.matrix(), "--only", "xyz"], "no cell is named so; there are good/float32")):
            with self.subTest(arguments):
                code, _, err = self.nightly(*arguments)
                self.assertEqual(code, 2)
                self.assertRegex(err, pattern)

    def test_dry_run(self):
        code, out, _ = self.nightly(self.matrix(), "--dry-run", "--only", "wrong", "--only", "w8a8",
                                    "--output-dir", self.folder / "dry")
        self.assertEqual(code, 0)
        self.assertEqual([line for line in out.splitlines() if not line.startswith(" ")], NAMES[1:3])
        self.assertIn(f"check:   {self.stub} check-accuracy {CODE} --dtype=float32 --quantization=w8a8 "
                      f"--reference={self.folder}/good.safetensors --min-top1=50 --min-cosine=0.9 --max-kl=1 --json", out)
        self.assertIn(f"start:   {self.stub} serve {CODE} --dtype=float32 --max-model-len=128\n", out)
        self.assertIn("--url=http://127.0.0.1:PORT", out)
        self.assertFalse((self.folder / "dry").exists())


class Page(html.parser.HTMLParser):
    """Fails for tags that do not close in order; keeps the page's text and its links."""
    ALONE = ("meta", "br", "!doctype")

    def __init__(self, text):
        super().__init__()
        self.open, self.text, self.links, self.tags = [], "", [], []
        self.feed(text)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.links += [value for name, value in attributes if name in ("href", "src")]
        if tag not in self.ALONE:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self.open and self.open.pop() == tag, (tag, self.getpos())

    def handle_data(self, data):
        self.text += data


class Runs(Folder):
    """One run with cells that pass, fail and crash; then runs that follow it."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.output = cls.folder / "out"
        case = cls()
        cls.code, cls.out, cls.err = case.nightly(case.matrix(), "--output-dir", cls.output)
        cls.first = cls.read()

    @classmethod
    def read(cls):
        return json.loads((cls.output / "results.json").read_text())

    def runTest(self):
        """So that setUpClass can make one."""

    def step(self, results, cell, name):
        found = next(c for c in results["cells"] if c["name"] == cell)
        return next(s for s in found["steps"] if s["name"] == name)

    def test_each_cell(self):
        self.assertEqual(self.code, 1, self.err)
        self.assertIn("FAIL: 2 of 4 cells failed", self.out)
        self.assertEqual([c["name"] for c in self.first["cells"]], NAMES)
        outcomes = {c["name"]: {s["name"]: s["outcome"] for s in c["steps"]} for c in self.first["cells"]}
        good = {"check": "pass", "start": "pass", "align": "pass", "eval": "none", "latency": "pass", "startup": "pass"}
        self.assertEqual(outcomes, {NAMES[0]: good, NAMES[1]: good, NAMES[2]: {**good, "check": "fail"},
                                    NAMES[3]: {**good, "check": "fail"}}, self.err)

    def test_reasons(self):
        self.assertRegex(self.step(self.first, NAMES[2], "check")["why"],
                         r"^top-1 [\d.]+ % \(at least 100.00 %\), .*highest KL .* \(at most 1.0e-07\)$")
        crash = self.step(self.first, NAMES[3], "check")
        self.assertEqual((crash["why"], crash["code"]), ("it was ended by signal SIGSEGV", -signal.SIGSEGV))
        self.assertEqual(crash["log_tail"], "about to crash")
        self.assertEqual(self.step(self.first, NAMES[0], "eval")["why"], "not evaluated: the matrix names no gate")

    def test_figures(self):
        figures = {key: value for s in self.first["cells"][0]["steps"] for key, value in s["figures"].items()}
        self.assertEqual(figures["top1_percent"], 100)
        self.assertLess(abs(figures["max_kl"]), 1e-9)
        for key in ("ready_s", "prefill_tok_s", "decode_tok_s", "latency_s", "warm_startup_s", "peak_rss_bytes"):
            self.assertGreater(figures[key], 0, key)
        self.assertNotIn("cold_startup_s", figures)  # no cold runs were asked for
        self.assertTrue(self.first["machine"]["instruction set"])
        self.assertRegex(self.first["versions"]["program"], r"^phidelity [\d.]+, SHA-256 [0-9a-f]{16}$")

    def test_commands_run_again(self):
        """What a report calls the exact command is one."""
        for name in ("check", "latency"):
            command = self.step(self.first, NAMES[0], name)["command"]
            self.assertEqual(subprocess.run(["sh", "-c", command], capture_output=True).returncode, 0, command)

    def test_page(self):
        page = Page((self.output / "report.html").read_text())
        self.assertIn("A <small> run", page.text)
        for text in ("FAIL", "2 of 4 cells failed", "about to crash", "SIGSEGV", "first run here", *NAMES,
                     "float32/w8a8/128", "decode tok/s", "check-accuracy"):
            self.assertIn(text, page.text)
        self.assertGreater(page.tags.count("svg"), 8)
        for link in page.links:
            self.assertTrue((self.output / link).is_file(), link)
        self.assertTrue(any(link.endswith("align.html") for link in page.links))

    def test_markdown(self):
        text = (self.output / "report.md").read_text()
        self.assertTrue(text.startswith("# A &lt;small&gt; run\n\n**FAIL**: 2 of 4 cells failed\n"))
        rows = [line for line in text.splitlines() if line.startswith("| `float32/none/128` |")]
        self.assertEqual(len(rows), 8)  # two models in four tables
        self.assertEqual({line.count(" | ") for line in rows[:2]}, {7})
        self.assertIn("```\nabout to crash\n```", text)

    def test_zz_followed(self):
        """The next run, with the wrong reference mended and one figure of the last run made to have been other."""
        last = self.read()
        self.step(last, NAMES[2], "latency")["figures"]["decode_tok_s"] *= 100
        last["machine"]["processor"] = "another"
        (self.output / "results.json").write_text(json.dumps(last))
        (self.folder / "wrong.safetensors").write_bytes((self.folder / "good.safetensors").read_bytes())
        code, _, err = self.nightly(self.matrix(), "--output-dir", self.output, "--only", "wrong")
        self.assertEqual(code, 0, err)
        text = (self.output / "report.md").read_text()
        self.assertIn("**PASS**: the cell passed", text)
        self.assertIn(f"newly passing: {NAMES[2]}", text)
        self.assertIn(f"not in this run: {NAMES[0]}, {NAMES[1]}, {NAMES[3]}", text)
        self.assertRegex(text, r"\| `wrong/float32/none/128` \| decode tok/s \| [\d,.]+ \| [\d,.]+ \| \*\*-\d+ %\*\* \|")
        self.assertIn("processor: another → ", text)
        self.assertIn("speeds do not compare", text)
        # Resumed, it is kept; and cells that a run left out are compared with the last run that had them.
        date = self.read()["cells"][0]["date"]
        code, _, err = self.nightly(self.matrix(), "--output-dir", self.output, "--only", "wrong", "--resume")
        self.assertIn("wrong/float32/none/128: kept", err)
        self.assertEqual((code, self.read()["cells"][0]["date"]), (0, date))
        self.spoil()
        code, _, err = self.nightly(self.matrix(), "--output-dir", self.output, "--only", "none")
        self.assertEqual(code, 1)
        text = (self.output / "report.md").read_text()
        self.assertIn("**FAIL**: 2 of 3 cells failed, 1 of them newly", text)
        self.assertIn(f"newly failing**: {NAMES[2]} (checked: top-1", text)

    def test_other_results(self):
        folder = self.folder / "other"
        folder.mkdir()
        for text in ("{}", "[]", "x", '{"format": 1, "cells": 5}', '{"format": 2, "cells": []}'):
            (folder / "results.json").write_text(text)
            with self.subTest(text):
                code, _, err = self.nightly(self.matrix(), "--output-dir", folder)
                self.assertEqual(code, 2)
                self.assertIn("results.json: not the results of a nightly run of this version", err)


class Limits(Folder):
    """Cells that hang."""
    HANGING = "models: [{path: MODEL, reference: good.safetensors}]\ndtypes: [float16]\nsteps: [STEPS]\ntime_limit_s: LIMIT\n"

    def hanging(self, steps, limit):
        return self.matrix(self.HANGING.replace("STEPS", steps).replace("LIMIT", limit))

    def assert_gone(self):
        for pid in (self.folder / "hanging").read_text().split():
            self.assertRaises(ProcessLookupError, os.kill, int(pid), 0)

    def test_hang(self):
        for steps, names in (("check, latency", ["check", "latency"]), ("start, align", ["start", "align"])):
            with self.subTest(steps):
                output = self.folder / steps.replace(", ", "-")
                code, _, err = self.nightly(self.hanging(steps, "1"), "--output-dir", output)
                self.assertEqual(code, 1, err)
                found = json.loads((output / "results.json").read_text())["cells"][0]["steps"]
                self.assertEqual([s["name"] for s in found], names)
                self.assertEqual(found[0]["why"], "the cell's time limit of 1 s was reached")
                self.assertEqual(found[0]["log_tail"], "about to hang")
                self.assertEqual((found[1]["outcome"], found[1]["why"]),
                                 ("none", "not run: the cell's time limit of 1 s was used up before"))
                self.assertIn("about to hang", (output / "report.md").read_text())
                self.assert_gone()

    def test_interrupted(self):
        for sign in (signal.SIGINT, signal.SIGTERM):
            with self.subTest(sign):
                (self.folder / "hanging").write_text("")
                output = self.folder / f"interrupted-{sign}"
                process = subprocess.Popen(
                    [sys.executable, "-m", "phidelity.nightly", self.hanging("check", "600"), "--output-dir", output,
                     "--program", self.stub], stderr=subprocess.PIPE, text=True)
                while not (self.folder / "hanging").read_text():
                    self.assertIsNone(process.poll())
                    time.sleep(0.02)
                process.send_signal(sign)
                _, err = process.communicate(timeout=60)
                self.assertEqual(process.returncode, 130, err)
                self.assertIn("interrupted; what was found is in", err)
                self.assertIn("the run was ended early", (output / "report.md").read_text())
                self.assert_gone()


def results(**cells):
    """name=(outcome, figures)"""
    made = Results("t", "m", "c", "d", {"host": "h"}, {}, {"accuracy": 0.01, "score": 0.01, "speed": 0.15, "memory": 0.1})
    for name, (outcome, figures) in cells.items():
        made.cells.append(CellResult(name, "m", "v", [], "", "", steps=[StepResult("check", outcome, figures=figures)]))
    return made


class Comparison(unittest.TestCase):
    def test_first(self):
        self.assertIsNone(compare(None, results()))

    def test_cells(self):
        found = compare(results(a=("pass", {}), b=("fail", {}), c=("pass", {}), d=("fail", {}), e=("pass", {})),
                        results(a=("fail", {}), b=("pass", {}), c=("pass", {}), d=("fail", {}), f=("fail", {})))
        self.assertEqual([cell.name for cell in found.failing], ["a"])
        self.assertEqual([cell.name for cell in found.passing], ["b"])
        self.assertEqual((found.new, found.gone, found.moved), (["f"], ["e"], []))

    def test_figures(self):
        for key, before, now, share, better in (
                ("decode_tok_s", 100, 114, None, None), ("decode_tok_s", 100, 116, 0.16, True),
                ("decode_tok_s", 100, 84, -0.16, False), ("warm_startup_s", 1, 1.2, 0.2, False),
                ("warm_startup_s", 1, 0.8, -0.2, True), ("latency_s", 1, 9, None, None),
                ("peak_rss_bytes", 1e9, 1.2e9, 0.2, False),
                ("max_kl", 1e-4, 1.005e-4, None, None), ("max_kl", 1e-4, 1.02e-4, 0.02, False),
                ("max_kl", 1e-12, 9e-12, None, None), ("max_kl", 0.0, 1e-3, float("inf"), False),
                ("top1_percent", 100, 98, -0.02, False), ("ready_s", 0.02, 0.06, None, None),
                ("score gsm8k exact_match", 0.5, 0.6, 0.2, True), ("score gsm8k exact_match", 0.5, 0.504, None, None)):
            with self.subTest(key=key, before=before, now=now):
                found = compare(results(a=("pass", {key: before})), results(a=("pass", {key: now}))).moved
                if share is None:
                    self.assertEqual(found, [])
                else:
                    self.assertAlmostEqual(found[0].share, share)
                    self.assertEqual(found[0].better, better)


if __name__ == "__main__":
    tap.main()
