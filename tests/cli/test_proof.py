#!/usr/bin/env python3
"""Runs the commands that prove a deployment right: check-accuracy.

The references are tests/golden/*/golden.safetensors (golden/README.md says how they were made) and
references/ (make_references.py), all written by transformers. PHIDELITY names the program, PHI_TESTS the tests' folder, PHI_MODELS the bundled models. Prints TAP.
"""
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest
from html.parser import HTMLParser
from pathlib import Path

PROGRAM = os.environ["PHIDELITY"]
GOLDEN = Path(os.environ["PHI_TESTS"]) / "golden"
REFERENCES = Path(__file__).resolve().parent / "references"
MODELS = Path(os.environ["PHI_MODELS"])
FOLDERS = sorted(p.name for p in GOLDEN.iterdir() if (p / "golden.safetensors").exists())


def run(*arguments, **options):
    return subprocess.run([PROGRAM, *map(str, arguments)], stdin=subprocess.DEVNULL, capture_output=True,
                          timeout=300, **options)


# ---------------------------------------------------------------- safetensors in a few lines

def read_tensors(path):
    """{name: (dtype, shape, bytes)}"""
    data = Path(path).read_bytes()
    n = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + n])
    header.pop("__metadata__", None)
    return {name: (t["dtype"], t["shape"], data[8 + n + t["data_offsets"][0]:8 + n + t["data_offsets"][1]])
            for name, t in header.items()}


def write_tensors(path, tensors):
    header, at = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    Path(path).write_bytes(struct.pack("<Q", len(text)) + text + b"".join(t[2] for t in tensors.values()))


def floats(dtype, data):
    if dtype == "BF16":
        return [struct.unpack("<f", b"\0\0" + data[i:i + 2])[0] for i in range(0, len(data), 2)]
    code, size = {"F32": ("f", 4), "F16": ("e", 2)}[dtype]
    return list(struct.unpack(f"<{len(data) // size}{code}", data))


def packed(dtype, values):
    if dtype == "BF16":
        return b"".join(struct.pack("<f", x)[2:] for x in values)
    return struct.pack(f"<{len(values)}{'f' if dtype == 'F32' else 'e'}", *values)


class Case(unittest.TestCase):
    def folder(self):
        folder = Path(tempfile.mkdtemp(prefix="phidelity-proof-"))
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        return folder

    def spoiled(self, name, pattern, factor=1.05):
        """A copy of a golden checkpoint with one weight matrix scaled."""
        copy = self.folder() / name
        shutil.copytree(GOLDEN / name, copy)
        n_scaled = 0
        for file in copy.glob("model*.safetensors"):
            tensors = read_tensors(file)
            for tensor, (dtype, shape, data) in tensors.items():
                if re.search(pattern, tensor):
                    tensors[tensor] = dtype, shape, packed(dtype, [x * factor for x in floats(dtype, data)])
                    n_scaled += 1
            write_tensors(file, tensors)
        self.assertEqual(n_scaled, 1)
        return copy


class CheckAccuracy(Case):
    def check(self, model, reference, *arguments):
        """(exit code, the JSON object)"""
        result = run("check-accuracy", model, "--reference", reference, "--json", *arguments)
        self.assertIn(result.returncode, (0, 1), result.stderr)
        self.assertNotIn(b"phidelity: error", result.stderr)
        return result.returncode, json.loads(result.stdout)

    def fails(self, pattern, *arguments):
        result = run("check-accuracy", *arguments)
        errors = [line for line in result.stderr.decode().splitlines() if "warning" not in line]
        self.assertEqual((result.returncode, len(errors), result.stdout), (1, 1, b""), errors)
        self.assertRegex(errors[0], pattern)

    def test_goldens(self):
        self.assertEqual(len(FOLDERS), 10)
        for name in FOLDERS:
            with self.subTest(name):
                reference = GOLDEN / name / "golden.safetensors"
                if name == "phi-dynamic":
                    self.fails("a prompt has 33 tokens.*context of 24", GOLDEN / name, "-r", reference)
                    continue
                code, report = self.check(GOLDEN / name, reference, "--dtype", "float32")
                self.assertEqual((code, report["pass"], report["dtype"]), (0, True, "float32"))
                total = report["total"]
                self.assertEqual(total["top1_percent"], 100)
                self.assertLess(total["max_kl"], 1e-7)
                self.assertGreater(total["min_cosine"], 0.999999)
                n = [t[1][0] for name, t in sorted(read_tensors(reference).items()) if name.endswith("input_ids")]
                self.assertEqual([p["n_positions"] for p in report["prompts"]], n)
                self.assertEqual([len(p["positions"]) for p in report["prompts"]], n)
                self.assertEqual(total["n_positions"], sum(n))
                self.assertEqual(total["max_kl"], max(x["kl"] for p in report["prompts"] for x in p["positions"]))

    def test_own_logits(self):
        """What `logits` wrote compares equal to the bit; by hand, against another reading of the numbers."""
        file = self.folder() / "own.safetensors"
        model = GOLDEN / "phi3-gqa"
        self.assertEqual(run("logits", model, "--tokens", "5 6 7 8", "--out", file).returncode, 0)
        code, report = self.check(model, file, "--min-top1", "100", "--min-cosine", "0.999999", "--max-kl", "0")
        self.assertEqual(code, 0)
        self.assertEqual(report["total"]["max_difference"], 0)
        self.assertEqual(report["total"]["top5_overlap_percent"], 100)
        tensors = read_tensors(file)
        dtype, shape, data = tensors["logits"]
        logits = floats(dtype, data)
        logits[shape[1] + 3] += 0.25  # row 1
        tensors["logits"] = dtype, shape, packed(dtype, logits)
        write_tensors(file, tensors)
        _, report = self.check(model, file)
        differences = [p["max_difference"] for p in report["prompts"][0]["positions"]]
        self.assertEqual(differences, [0, 0.25, 0, 0])
        self.assertAlmostEqual(report["prompts"][0]["positions"][1]["mean_difference"], 0.25 / shape[1], 9)

    def test_a_scaled_matrix_fails(self):
        for name, tensor in [("phi-head64", r"layers\.1\.mlp\.fc2\.weight"),
                             ("phi3-gqa", r"layers\.0\.self_attn\.qkv_proj\.weight"),
                             ("phi3-unfused", r"layers\.1\.mlp\.up_proj\.weight")]:
            with self.subTest(name):
                copy = self.spoiled(name, tensor)
                code, report = self.check(copy, copy / "golden.safetensors", "--dtype", "float32", "--max-kl", "1e-6")
                self.assertEqual((code, report["pass"]), (1, False))
                self.assertGreater(report["total"]["max_kl"], 1e-6)

    def test_each_limit_alone(self):
        copy = self.spoiled("phi3-gqa", r"layers\.0\.self_attn\.qkv_proj\.weight", 3)
        reference = copy / "golden.safetensors"
        off = {"--min-top1": "0", "--min-cosine": "-1", "--max-kl": "1e9"}
        arguments = [x for pair in off.items() for x in pair]
        code, report = self.check(copy, reference, *arguments)
        self.assertEqual((code, report["pass"]), (0, True))
        for flag, field, value in [("--min-top1", "top1_percent", 100), ("--min-cosine", "min_cosine", 1),
                                   ("--max-kl", "max_kl", 0)]:
            with self.subTest(flag):
                self.assertNotEqual(report["total"][field], value)
                self.assertEqual(self.check(copy, reference, *arguments, flag, value)[0], 1)

    def test_table(self):
        name = GOLDEN / "phi3-gqa"
        result = run("check-accuracy", name, "--reference", name / "golden.safetensors", "--dtype", "float32")
        lines = result.stdout.decode().splitlines()
        self.assertEqual(result.returncode, 0)
        self.assertTrue(lines[-1].startswith("PASS: top-1 100.00 % (at least 99 %)"), lines[-1])
        self.assertRegex("\n".join(lines), r"(?m)^all +\d+ +100\.00 ")

    def test_page(self):
        copy = self.spoiled("phi3-gqa", r"layers\.0\.self_attn\.qkv_proj\.weight", 3)
        for model, verdict in [(GOLDEN / "phi3-gqa", "PASS"), (copy, "FAIL")]:
            page = self.folder() / "report.html"
            code, report = self.check(model, copy / "golden.safetensors", "--html", page, "--dtype", "float32")
            self.assertEqual(code, verdict == "FAIL")
            text = page.read_text(encoding="utf-8")
            self.assertLess(text.index(f"<b>{verdict}</b>"), text.index("<table>"))
            self.assertNotRegex(text, r"(?i)(src|href)=|url\(|@import|<script")
            self.assertEqual(text.count("<rect"), 2 * report["total"]["n_positions"])
            self.well_formed(text)

    def well_formed(self, text):
        open_tags = []

        class Checker(HTMLParser):
            def handle_starttag(self, tag, attributes):
                if tag not in ("meta", "br"):
                    open_tags.append(tag)

            def handle_endtag(self, tag):
                assert open_tags.pop() == tag, tag

        Checker().feed(text)
        self.assertEqual(open_tags, [])

    def test_bad_references(self):
        model = GOLDEN / "phi3-gqa"
        golden = read_tensors(model / "golden.safetensors")
        file = self.folder() / "bad.safetensors"
        vocab = golden["0.logits"][1][1]
        ids = ("I64", [2], struct.pack("<2q", 1, 2))
        logits = ("F32", [2, vocab], packed("F32", [0.5] * (2 * vocab)))
        nan = ("F32", [2, vocab], packed("F32", [0.5] * (2 * vocab - 1) + [float("nan")]))
        for pattern, tensors in [
            ("not a reference", {"logits": logits}),
            ("no logits of it", {"input_ids": ids}),
            ("one row for each id", {"input_ids": ids, "logits": ("F32", [1, vocab], logits[2][:4 * vocab])}),
            ("floats", {"input_ids": ids, "logits": ("I32", [2, vocab], logits[2])}),
            ("reference of another model", {"input_ids": ids, "logits": ("F32", [2, 2], logits[2][:16])}),
            ("int32 or int64", {"input_ids": ("F32", [2], ids[2][:8]), "logits": logits}),
            (r"input_ids\[1\] is no id", {"input_ids": ("I64", [2], struct.pack("<2q", 1, vocab)), "logits": logits}),
            (r"input_ids\[0\] is no id", {"input_ids": ("I64", [2], struct.pack("<2q", -1, 1)), "logits": logits}),
            ("NaN", {"input_ids": ids, "logits": nan}),
        ]:
            with self.subTest(pattern):
                write_tensors(file, tensors)
                self.fails(pattern, model, "--reference", file)
        file.write_bytes(b"junk")
        self.fails("bad.safetensors", model, "--reference", file)
        self.fails("no such file|cannot open", model, "--reference", file / "none")

    # ---------------------------------------------------------------- --locate

    def located(self, model, reference, *arguments):
        code, report = self.check(model, reference, "--dtype", "float32", "--locate", *arguments)
        self.assertEqual(code == 0, report["pass"])
        self.assertEqual(code, report["locate"]["first"] is not None)  # the default limits alone see most of these
        return report["locate"]

    def test_right_layers(self):
        for name in ("phi-head64", "phi3-gqa"):
            found = self.located(GOLDEN / name, REFERENCES / f"{name}.safetensors")
            self.assertIsNone(found["first"])
            n_layers = json.loads((GOLDEN / name / "config.json").read_text())["num_hidden_layers"]
            self.assertEqual(len(found["stages"]), 3 * n_layers + 2)
            self.assertEqual(found["stages"][0], {"stage": "the embeddings", "difference": 0})
            self.assertLess(max(s["difference"] for s in found["stages"]), 1e-5)

    def test_each_scaled_matrix_is_located(self):
        parts = {"self_attn": "attention", "input_layernorm": "attention", "post_attention_layernorm": "MLP",
                 "mlp": "MLP"}
        n_seen = 0
        for name in ("phi-head64", "phi3-gqa"):
            for tensor in read_tensors(GOLDEN / name / "model.safetensors"):
                if not tensor.endswith("weight"):
                    continue
                match = re.match(r"model\.layers\.(\d+)\.(\w+)\.", tensor)
                expected = (f"layer {match[1]}, {parts[match[2]]}" if match else "the embeddings"
                            if "embed" in tensor else "the logits (last norm and head)")
                with self.subTest(name, tensor=tensor):
                    copy = self.spoiled(name, f"^{re.escape(tensor)}$")
                    found = self.located(copy, REFERENCES / f"{name}.safetensors")
                    self.assertEqual(found["first"], expected)
                    n_seen += 1
        self.assertGreater(n_seen, 20)

    def test_location_in_words(self):
        copy = self.spoiled("phi3-gqa", r"layers\.1\.mlp\.down_proj\.weight")
        page = self.folder() / "page.html"
        arguments = ["check-accuracy", copy, "-r", REFERENCES / "phi3-gqa.safetensors", "--locate", "--html", page]
        result = run(*arguments, "--dtype", "float32")
        self.assertEqual(result.returncode, 1)
        text = result.stdout.decode()
        self.assertRegex(text, r"\nleaves the reference in layer 1, MLP: relative difference 5\.0e-02 ")
        self.assertIn("leaves the reference in layer 1, MLP", page.read_text())
        self.well_formed(page.read_text())
        result = run(*arguments, "--dtype", "float32", "--max-layer-difference", "0.2", "--min-top1", "0")
        self.assertEqual(result.returncode, 0, "with a wide limit nothing leaves")

    def test_layers_without_parts(self):
        copy = self.spoiled("phi3-longrope", r"layers\.1\.self_attn\.o_proj\.weight")
        found = self.located(copy, copy / "golden.safetensors")
        self.assertEqual(found["first"], "layer 1, sum")

    def test_bad_layers(self):
        model = GOLDEN / "phi3-gqa"
        file = self.folder() / "bad.safetensors"
        self.assertEqual(run("logits", model, "--tokens", "5 6", "--out", file).returncode, 0)
        self.fails("written with --layers", model, "-r", file, "--locate")
        tensors = read_tensors(file)
        for shape in ([2, 2], [4], [1, 4]):
            write_tensors(file, {**tensors, "hidden.0": ("F32", shape, bytes(16))})
            self.fails(r"hidden\.0: expected floats", model, "-r", file, "--locate")

    def test_wrong_command_lines(self):
        for arguments in [["M"], ["M", "x", "-r", "f"], ["M", "-r", "f", "--min-top1", "101"]]:
            result = run("check-accuracy", *arguments)
            self.assertEqual(result.returncode, 2, result.stderr)

    def test_unwritable_page(self):
        model = GOLDEN / "phi3-gqa"
        result = run("check-accuracy", model, "-r", model / "golden.safetensors", "--html", "/nowhere/page.html",
                     "--dtype", "float32")
        self.assertEqual(result.returncode, 1)
        self.assertIn(b"/nowhere/page.html: cannot create", result.stderr)


class Tap(unittest.TestResult):
    """One line per test; failures and skips are told on standard error."""

    def __init__(self):
        super().__init__()
        self.failed = False

    def line(self, verdict, test):
        print(f"{verdict} {self.testsRun} - {test.id().partition('.')[2]}", flush=True)

    def startTest(self, test):
        super().startTest(test)
        self.failed = False

    def addFailure(self, test, err):
        print(self._exc_info_to_string(err, test), file=sys.stderr)
        self.failures.append((test, ""))
        self.failed = True

    addError = addFailure

    def addSubTest(self, test, subtest, err):
        if err:
            print(subtest.id(), file=sys.stderr)
            self.addFailure(test, err)

    def stopTest(self, test):
        super().stopTest(test)
        self.line("not ok" if self.failed else "ok", test)


if __name__ == "__main__":
    suite = unittest.defaultTestLoader.loadTestsFromModule(sys.modules[__name__])
    print(f"1..{suite.countTestCases()}")
    result = Tap()
    suite.run(result)
    sys.exit(0 if result.wasSuccessful() else 1)
