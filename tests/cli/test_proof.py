#!/usr/bin/env python3
"""Runs the commands that prove a deployment right: check-accuracy, align, run-batch.

The references are tests/golden/*/golden.safetensors (golden/README.md says how they were made) and
references/ (make_references.py), all written by transformers. PHIDELITY names the program, PHI_TESTS the tests' folder, PHI_MODELS the bundled models. Prints TAP.
"""
import functools
import http.server
import json
import os
import re
import resource
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.request
from html.parser import HTMLParser
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import tap  # noqa: E402

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
        self.assertEqual((result.returncode, len(errors), result.stdout), (2, 1, b""), errors)
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
            self.assertEqual(text.count(">prompt 0</text>"), 2)
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
        self.assertEqual(result.returncode, 2)
        self.assertIn(b"/nowhere/page.html: cannot create", result.stderr)

    def test_unwritable_output(self):
        model = GOLDEN / "phi3-gqa"
        with open("/dev/full", "wb") as full:
            result = subprocess.run([PROGRAM, "check-accuracy", model, "-r", model / "golden.safetensors"], stdout=full,
                                    stderr=subprocess.PIPE, timeout=300)
        self.assertEqual(result.returncode, 2)
        self.assertIn(b"cannot write to standard output", result.stderr)


# ---------------------------------------------------------------- align

CODE, CHAT = MODELS / "phi-tiny-code", MODELS / "phi3-tiny-chat"


class Server:
    """`phidelity serve`, killed when the test ends."""

    def __init__(self, case, model, *arguments):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self.process = subprocess.Popen([PROGRAM, "serve", str(model), "--host", "127.0.0.1", "--port", str(port),
                                         *map(str, arguments)], stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        case.addCleanup(self.stop)
        for _ in range(600):
            try:
                if urllib.request.urlopen(self.url + "/health", timeout=5).status == 200:
                    return
            except OSError:
                time.sleep(0.05)
            case.assertIsNone(self.process.poll(), "the server ended")
        case.fail("the server does not start")

    def stop(self):
        self.process.kill()
        self.process.wait()


class FakeServer:
    """Answers every request by a function of path and body."""

    def __init__(self, case, answer):
        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def reply(self, body):
                status, value = answer(self.path, body)
                data = value if isinstance(value, bytes) else json.dumps(value).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def do_GET(self):
                self.reply(None)

            def do_POST(self):
                self.reply(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1/"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        case.addCleanup(self.server.server_close)
        case.addCleanup(self.server.shutdown)


def edit_distance(a, b):
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        row, old = [i], row
        for j, y in enumerate(b, 1):
            row.append(min(old[j] + 1, row[-1] + 1, old[j - 1] + (x != y)))
    return row[-1]


def common_length(a, b):
    row = [0] * (len(b) + 1)
    for x in a:
        row, old = [0], row
        for j, y in enumerate(b, 1):
            row.append(old[j - 1] + 1 if x == y else max(old[j], row[-1]))
    return row[-1]


@functools.cache
def tokens_of(prompt, n):
    """The n tokens that `generate` gives."""
    result = run("generate", CODE, "--prompt-token-ids", " ".join(map(str, prompt)), "--temperature", "0",
                 "--max-tokens", n, "--json")
    return json.loads(result.stdout.splitlines()[0])["outputs"][0]["token_ids"]


class Align(Case):
    def align(self, model, *arguments):
        result = run("align", model, "--json", *arguments)
        self.assertIn(result.returncode, (0, 1), result.stderr)
        self.assertNotIn(b"phidelity: error", result.stderr)
        report = json.loads(result.stdout)
        self.assertEqual(result.returncode == 0, report["pass"])
        return report

    def fails(self, pattern, *arguments):
        result = run("align", *arguments)
        errors = [line for line in result.stderr.decode().splitlines() if "warning" not in line]
        self.assertEqual((result.returncode, len(errors), result.stdout), (2, 1, b""), errors)
        self.assertRegex(errors[0], pattern)

    def test_own_server(self):
        for model, n_cases, original in [(CODE, 5, None), (CHAT, 9, 256)]:
            for dtype in ("float32", "bfloat16"):
                with self.subTest(model.name, dtype=dtype):
                    report = self.align(model, "--dtype", dtype)
                    self.assertTrue(report["pass"])
                    self.assertEqual(len(report["answers"]), n_cases)
                    for answer in report["answers"]:
                        self.assertEqual(answer["judged"], "exact")
                        self.assertEqual(answer["here"], answer["there"])
                        self.assertEqual(answer["prompt_here"], answer["prompt_there"])
                        self.assertEqual((answer["edit"], answer["rouge_l"], answer["parting"]), (1, 1, None))
                    long = [a for a in report["answers"] if a["long"]]
                    self.assertTrue(all(len(a["here"]) == 64 for a in long))
                    if original:  # one crosses LongRoPE's original length on its way, one begins beyond it
                        self.assertLess(long[0]["n_prompt_tokens"], original)
                        self.assertGreater(long[0]["n_prompt_tokens"] + 64, original)
                        self.assertGreater(long[1]["n_prompt_tokens"], original)

    def test_a_shorter_context(self):
        """Long prompts keep to it; the length at which LongRoPE changes is crossed where there is room."""
        for model, context, n_cases in [(CODE, 200, 5), (CHAT, 1000, 9), (CHAT, 400, 8), (CHAT, 200, 8)]:
            with self.subTest(model.name, context=context):
                report = self.align(model, "--max-model-len", context)
                self.assertTrue(report["pass"])
                self.assertEqual(len(report["answers"]), n_cases)
                self.assertLessEqual(max(a["n_prompt_tokens"] + 64 for a in report["answers"] if a["long"]), context)
        self.fails("a prompt of 180 tokens and an answer of 64 exceed the context of 200", CODE, "--max-model-len", "200",
                   "--long-prompt-len", "180")

    def test_flags_reach_the_own_server(self):
        """Dummy weights of a seed: another seed would answer something else."""
        report = self.align(CODE, "--load-format", "dummy", "--seed", "7", "--mode", "short", "--no-enable-prefix-caching")
        self.assertTrue(report["pass"])

    def test_a_checkpoint_without_tokenizer(self):
        prompts = self.folder() / "prompts.jsonl"
        prompts.write_text("[5, 6, 7]\n[9]\n" + json.dumps(list(range(3, 40))) + "\n")  # the last beyond LongRoPE's length
        for name in ("phi3-gqa", "phi3-longrope", "phi-head64"):
            report = self.align(GOLDEN / name, "--mode", "short", "--prompts", prompts, "--max-tokens", "20")
            self.assertEqual([a["pass"] for a in report["answers"]], [True] * 3)
        self.fails("no tokenizer", GOLDEN / "phi3-gqa")

    def test_another_seed(self):
        server = Server(self, CODE, "--load-format", "dummy", "--seed", "8")
        report = self.align(CODE, "--load-format", "dummy", "--seed", "7", "--mode", "short", "--url", server.url)
        self.assertFalse(report["pass"])
        parting = report["answers"][0]["parting"]
        self.assertEqual((parting["token"], parting["same_prompt"]), (0, True))

    def test_a_wrong_template(self):
        server = Server(self, CHAT, "--chat-template", "{% for m in messages %}{{ m.content }} {% endfor %}")
        report = self.align(CHAT, "--mode", "short", "--url", server.url)
        self.assertFalse(report["pass"])
        for answer in report["answers"]:
            self.assertEqual(answer["pass"], answer["kind"] != "chat")
            if answer["kind"] == "chat":
                self.assertIn("the server read another prompt", answer["parting"]["text"])

    def test_a_spoiled_weight(self):
        copy = self.folder() / "copy"
        shutil.copytree(CHAT, copy)
        tensors = read_tensors(copy / "model.safetensors")
        name = "model.layers.2.mlp.down_proj.weight"
        dtype, shape, data = tensors[name]
        tensors[name] = dtype, shape, packed(dtype, [-x for x in floats(dtype, data)])
        write_tensors(copy / "model.safetensors", tensors)
        page = self.folder() / "page.html"
        server = Server(self, copy)
        report = self.align(CHAT, "--url", server.url, "--judge", "exact", "--html", page)
        self.assertFalse(report["pass"])
        parted = [a for a in report["answers"] if not a["pass"]]
        self.assertGreater(len(parted), 4)
        for answer in parted:
            at, parting = answer["parting"]["token"], answer["parting"]
            self.assertEqual(answer["here"][:at], answer["there"][:at])
            if at < min(len(answer["here"]), len(answer["there"])):
                here, there = parting["here"], parting["there"]
                self.assertEqual((here["token"], there["token"]), (answer["here"][at], answer["there"][at]))
                for own, other, side in [(here, there, "logprob_here"), (there, here, "logprob_there")]:
                    if other[side] is not None:  # each side's own token is its likeliest
                        self.assertGreaterEqual(own[side], other[side])
                    self.assertLess(own[side], 0.001)
        text = page.read_text()
        self.assertIn("the answers part at token", text)
        self.assertEqual(text.count("<details open>"), len(parted))
        self.assertEqual(text.count("<details>"), len(report["answers"]) - len(parted))
        self.assertIn('<span class="note">user</span> Tell me a short story about a fox.', text)
        self.assertNotRegex(text, r"(?i)(src|href)=|url\(|@import|<script")
        CheckAccuracy.well_formed(self, text)

    def test_under_load(self):
        server = Server(self, CHAT, "--max-num-seqs", "32")
        over = threading.Event()
        body = {"model": str(CHAT), "prompt": "Once upon a time", "max_tokens": 40, "temperature": 1, "ignore_eos": True}
        n_answers = []

        def client(number):
            while not over.is_set():
                request = urllib.request.Request(server.url + "/v1/completions", headers={"Content-Type": "application/json"},
                                                 data=json.dumps({**body, "seed": number}).encode())
                n_answers.append(json.loads(urllib.request.urlopen(request, timeout=60).read())["usage"]["completion_tokens"])

        clients = [threading.Thread(target=client, args=(i,)) for i in range(16)]
        for c in clients:
            c.start()
        try:
            report = self.align(CHAT, "--url", server.url, "--judge", "exact")
        finally:
            over.set()
            for c in clients:
                c.join()
        self.assertTrue(report["pass"])
        self.assertGreaterEqual(len(n_answers), 16)

    # ---------------------------------------------------------------- judges, by a server that answers as told

    def fake(self, change):
        """A server that gives what the model gives, changed: tokens -> tokens."""
        def answer(path, body):
            if path == "/v1/models":
                return 200, {"data": [{"id": "fake"}]}
            tokens = tokens_of(tuple(body["prompt"]), body["max_tokens"])
            assert body["model"] == "fake" and body["temperature"] == 0 and path == "/v1/completions"
            return 200, {"choices": [{"text": "", "token_ids": change(tokens)}]}
        return FakeServer(self, answer)

    def one(self, change, *arguments):
        prompts = self.folder() / "prompts.jsonl"
        prompts.write_text("[5, 6, 7, 8, 9]\n")
        report = self.align(CODE, "--mode", "short", "--prompts", prompts, "--url", self.fake(change).url, *arguments)
        return report["answers"][0]

    def test_judges(self):
        def swapped(*places):
            return lambda ids: [x ^ 1 if i in places else x for i, x in enumerate(ids)]

        strict, relaxed = ("--judge", "strict"), ("--judge", "relaxed", "--max-tokens", "40")
        for change, arguments, expected in [
            (swapped(), ("--judge", "exact"), True),
            (swapped(31), ("--judge", "exact"), False),
            (lambda ids: ids[:-1], ("--judge", "exact"), False),
            (swapped(16), (), True),  # with --url the default is strict
            (swapped(16), strict, True),
            (swapped(15), strict, False),
            (swapped(15), (*strict, "--strict-min-equal", "15"), True),
            (swapped(20), (*strict, "--strict-min-equal", "21"), False),
            (lambda ids: ids[:20], strict, True),
            (lambda ids: ids[:20], (*strict, "--max-length-difference", "12"), True),
            (lambda ids: ids[:20], (*strict, "--max-length-difference", "11"), False),
            (swapped(16, 17), relaxed, True),
            (swapped(15), relaxed, False),
            (swapped(15), (*relaxed, "--relaxed-min-prefix", "15"), True),
            (swapped(*range(16, 30)), relaxed, False),
            (swapped(*range(16, 30)), (*relaxed, "--relaxed-min-edit", "0.6"), True),
            (swapped(*range(16, 30)), (*relaxed, "--relaxed-min-rouge", "0.6"), True),
            (lambda ids: ids[:16] + [1] + ids[16:26] + [1] + ids[26:-2], relaxed, True),
        ]:
            with self.subTest(arguments):
                answer = self.one(change, *arguments)
                here, there = answer["here"], answer["there"]
                self.assertEqual(there, change(here))
                self.assertEqual(answer["pass"], expected)
                longer = max(len(here), len(there))
                self.assertAlmostEqual(answer["edit"], 1 - edit_distance(here, there) / longer, 6)
                self.assertAlmostEqual(answer["rouge_l"], 2 * common_length(here, there) / (len(here) + len(there)), 6)
                self.assertEqual(answer["length_difference"], len(there) - len(here))

    def test_a_server_without_extensions(self):
        seen = []

        def answer(path, body):
            seen.append(body)
            if path == "/v1/models":
                return 200, {"data": [{"id": "plain"}]}
            prompt = body["prompt"]
            text = run("generate", CODE, "-p", prompt, "--temperature", "0", "--max-tokens", body["max_tokens"]).stdout
            return 200, {"choices": [{"text": text.decode().removesuffix("\n") if len(seen) < 3 else "else"}]}

        prompts = self.folder() / "prompts.jsonl"
        prompts.write_text(json.dumps("def add(a, b):") + "\n" + json.dumps("import os") + "\n")
        server = FakeServer(self, answer)
        report = self.align(CODE, "--mode", "short", "--no-extensions", "--prompts", prompts, "--url", server.url,
                            "--judge", "exact", "--max-tokens", "12")
        self.assertEqual(set(seen[1]), {"model", "prompt", "max_tokens", "temperature", "top_p"})
        self.assertEqual([a["pass"] for a in report["answers"]], [True, False])

    def test_servers_that_fail(self):
        models = (200, {"data": [{"id": "x"}]})
        common = (CODE, "--mode", "short", "--url")
        for pattern, reply in [
            ("status 500: broken", (500, {"error": {"message": "broken"}})),
            ("status 404: nothing here", (404, b"nothing here")),
            ("line 1", (200, b"{")),
            ("no choices", (200, {})),
            ("no choices", (200, [])),
            ("no text", (200, {"choices": [{}]})),
        ]:
            with self.subTest(pattern):
                server = FakeServer(self, lambda path, body: reply if body else models)
                self.fails(pattern, *common, server.url)
        self.fails("no model", *common, FakeServer(self, lambda path, body: (200, b"x")).url)
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.fails("127.0.0.1.*[Cc]onnect", *common, f"http://127.0.0.1:{s.getsockname()[1]}")

    def test_an_own_server_that_does_not_start(self):
        def limit():  # its log is a file, ours is a pipe
            resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        result = run("align", CODE, "--mode", "short", preexec_fn=limit)
        self.assertEqual((result.returncode, result.stdout), (2, b""))
        self.assertIn(b"error: the server did not start: ", result.stderr)

    def test_the_environment_does_not_reach_the_own_server(self):
        result = run("align", CODE, "--mode", "short", env={**os.environ, "VLLM_API_KEY": "secret"})
        self.assertEqual(result.returncode, 0, result.stderr)

    def test_wrong_prompts(self):
        prompts = self.folder() / "prompts.jsonl"
        for pattern, text in [("no prompts", "\n"), ("line 1", "{"), ("line 2: expected", '"a"\n[]'),
                              ("line 1: expected", "7"), ("line 1: .0. is no id", "[999999]")]:
            prompts.write_text(text)
            self.fails(pattern, CODE, "--mode", "short", "--prompts", prompts)

    def test_wrong_command_lines(self):
        for arguments in [[], ["M", "x"], ["M", "--judge", "mild"], ["M", "--mode", "long", "--prompts", "f"]]:
            self.assertEqual(run("align", *arguments).returncode, 2)


# ---------------------------------------------------------------- run-batch

class RunBatch(Case):
    CHAT_URL, TEXT_URL = "/v1/chat/completions", "/v1/completions"

    def request(self, custom_id, url=TEXT_URL, **body):
        body = {"model": "m", "max_tokens": 6, "temperature": 0, **body}
        return {"custom_id": custom_id, "method": "POST", "url": url, "body": body}

    def write(self, folder, lines):
        file = folder / "in.jsonl"
        file.write_text("".join((x if isinstance(x, str) else json.dumps(x)) + "\n" for x in lines), encoding="utf-8")
        return file

    def batch(self, folder, *arguments, code=0, **options):
        result = run("run-batch", CHAT, "-i", folder / "in.jsonl", "-o", folder / "out.jsonl", "--served-model-name", "m",
                     *arguments, **options)
        self.assertEqual(result.returncode, code, result.stderr)
        self.assertEqual(result.stdout, b"")
        return result

    def answers(self, folder):
        text = (folder / "out.jsonl").read_text(encoding="utf-8")
        self.assertTrue(not text or text.endswith("\n"))
        return [json.loads(line) for line in text.splitlines()]

    def many(self, n):
        return [self.request(f"id {i}", prompt=f"Story {i}:", max_tokens=1 + i % 7) for i in range(n)]

    def test_answers_are_the_server_s(self):
        folder = self.folder()
        requests = [
            self.request("chat", self.CHAT_URL, messages=[{"role": "user", "content": "What is 2 + 3?"}]),
            self.request("text", prompt="Once upon a time", logprobs=2, n=1),
            self.request("ids", prompt=[5, 6, 7]),
            self.request("list", prompt=["one", "two"], echo=True),
            self.request("n\u00fcmmer \u6570 \"\\", prompt="x", temperature=1, seed=5, n=2),
        ]
        self.write(folder, requests)
        result = self.batch(folder)
        self.assertRegex(result.stderr.decode(), r"5 requests, 0 of them with an error, in ")
        server = Server(self, CHAT, "--served-model-name", "m")
        ids = set()
        for request, line in zip(requests, self.answers(folder), strict=True):
            self.assertEqual(set(line), {"id", "custom_id", "response", "error"})
            self.assertEqual((line["custom_id"], line["error"]), (request["custom_id"], None))
            self.assertRegex(line["id"], r"\Avllm-[0-9a-f]{32}\Z")
            response = line["response"]
            self.assertRegex(response["request_id"], r"\Avllm-batch-[0-9a-f]{32}\Z")
            self.assertEqual(response["status_code"], 200)
            ids |= {line["id"], response["request_id"], response["body"]["id"]}
            posted = urllib.request.Request(server.url + request["url"], data=json.dumps(request["body"]).encode(),
                                            headers={"Content-Type": "application/json"})
            over_http = json.loads(urllib.request.urlopen(posted, timeout=60).read())
            for body in (over_http, response["body"]):
                body.pop("id"), body.pop("created")
            self.assertEqual(response["body"], over_http)
        self.assertEqual(len(ids), 15)

    def test_bad_lines(self):
        folder = self.folder()
        good = self.request("good", prompt="a")
        cases = [
            ("not json", None, 400, "not valid JSON"),
            ("[1]", None, 400, "expected a JSON object"),
            ("{}", None, 400, "custom_id"),
            ({**good, "custom_id": 5}, None, 400, "custom_id"),
            ({**good, "method": "GET"}, "good", 400, "method"),
            ({**good, "url": "/v1/embeddings"}, "good", 400, "URL /v1/embeddings was used. Supported endpoints: "),
            ({**good, "url": None}, "good", 400, "Supported endpoints"),
            ({**good, "body": "x"}, "good", 400, "body"),
            (self.request("s", prompt="a", stream=True), "s", 400, "stream mode"),
            (self.request("m", prompt="a", model="other"), "m", 404, "does not exist"),
            (self.request("t", prompt="a", temperature=-1), "t", 400, "temperature"),
            (self.request("c", self.CHAT_URL), "c", 400, "messages"),
            ('{"custom_id": "\\ud800"}', None, 400, "JSON"),
        ]
        lines = []
        for line, *_ in cases:
            lines += [line, "", good]
        self.write(folder, lines)
        result = self.batch(folder)
        self.assertIn(f"{2 * len(cases)} requests, {len(cases)} of them with an error", result.stderr.decode())
        answers = self.answers(folder)
        self.assertEqual(len(answers), 2 * len(cases))
        for (_, custom_id, status, words), bad, after in zip(cases, answers[::2], answers[1::2], strict=True):
            with self.subTest(words):
                self.assertEqual((bad["custom_id"], bad["response"]["status_code"]), (custom_id, status))
                self.assertIsNone(bad["response"]["body"])
                self.assertIn(words, json.dumps(bad["error"]))
                self.assertEqual((after["custom_id"], after["response"]["status_code"]), ("good", 200))

    def test_order(self):
        folder = self.folder()
        requests = self.many(300)
        self.write(folder, requests)
        self.batch(folder, "--max-num-seqs", "16")
        answers = self.answers(folder)
        self.assertEqual([a["custom_id"] for a in answers], [r["custom_id"] for r in requests])
        for answer, request in zip(answers, requests):
            self.assertLessEqual(answer["response"]["body"]["usage"]["completion_tokens"], request["body"]["max_tokens"])

    def test_resume(self):
        folder = self.folder()
        requests = self.many(40)
        self.write(folder, requests)
        out = folder / "out.jsonl"
        self.batch(folder, "--resume")  # nothing to go on from
        whole = out.read_bytes().splitlines(keepends=True)
        for n, torn in [(0, b""), (17, b""), (17, whole[17][:30]), (40, b"")]:
            with self.subTest(n=n, torn=torn):
                out.write_bytes(b"".join(whole[:n]) + torn)
                result = self.batch(folder, "--resume")
                self.assertIn(f"{40 - n} requests, 0 of them", result.stderr.decode())
                lines = out.read_bytes().splitlines(keepends=True)
                self.assertEqual(lines[:n], whole[:n])
                texts = [[json.loads(x)["response"]["body"]["choices"][0]["text"] for x in y] for y in (lines, whole)]
                self.assertEqual(texts[0], texts[1])
        out.write_bytes(b"".join(whole[:5]))
        self.batch(folder)  # begins anew
        self.assertEqual(len(self.answers(folder)), 40)
        out.write_bytes(b"".join([whole[1], whole[0]]))
        result = self.batch(folder, "--resume", code=1)
        self.assertIn(b"line 1 answers another request", result.stderr)
        out.write_bytes(b"".join(whole) + whole[0])
        result = self.batch(folder, "--resume", code=1)
        self.assertIn(b"line 41 answers another request", result.stderr)
        self.assertEqual(out.read_bytes(), b"".join(whole) + whole[0], "what was there stays")

    def test_interrupt_and_resume(self):
        folder = self.folder()
        requests = [self.request(f"{i}", prompt="Once", max_tokens=150, ignore_eos=True) for i in range(2000)]
        self.write(folder, requests)
        process = subprocess.Popen([PROGRAM, "run-batch", CHAT, "-i", folder / "in.jsonl", "-o", folder / "out.jsonl",
                                    "--served-model-name", "m", "--max-num-seqs", "4"], stderr=subprocess.PIPE)
        out = folder / "out.jsonl"
        deadline = time.monotonic() + 60
        while (not out.exists() or out.read_bytes().count(b"\n") < 3) and time.monotonic() < deadline:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130, error)
        n = len(self.answers(folder))
        self.assertIn(f"{n} of 2000 answers are in ".encode(), error)
        self.assertIn(b"--resume", error)
        self.assertTrue(3 <= n < 2000)
        self.write(folder, requests[:n + 2])
        self.batch(folder, "--resume")
        self.assertEqual([a["custom_id"] for a in self.answers(folder)], [str(i) for i in range(n + 2)])

    def test_killed_and_resumed(self):
        """By SIGKILL, again and again, wherever it is: in the end each line is there once, in order."""
        folder = self.folder()
        requests = [self.request(f"{i}", prompt="Once", max_tokens=1 + i % 40, ignore_eos=True) for i in range(600)]
        self.write(folder, requests)
        out, n_kills, n_resumed = folder / "out.jsonl", 0, []
        command = [PROGRAM, "run-batch", CHAT, "-i", folder / "in.jsonl", "-o", out, "--served-model-name", "m",
                   "--max-num-seqs", "4", "--resume"]
        while n_kills < 5:
            before = out.read_bytes().count(b"\n") if out.exists() else 0
            process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
            deadline = time.monotonic() + 60
            while process.poll() is None and time.monotonic() < deadline:
                if out.exists() and out.read_bytes().count(b"\n") > before + 20:
                    break
                time.sleep(0.002)
            self.assertIsNone(process.poll(), "it was over before it was killed")
            process.kill()
            process.wait()
            n_kills += 1
            n_resumed.append(before)
        with open(out, "ab") as file:
            file.write(b'{"id":"torn')  # whatever of a line the kill might leave
        self.batch(folder, "--resume")
        self.assertEqual(n_resumed, sorted(set(n_resumed)))
        answers = self.answers(folder)
        self.assertEqual([a["custom_id"] for a in answers], [r["custom_id"] for r in requests])
        for answer, request in zip(answers, requests):
            self.assertEqual(answer["response"]["body"]["usage"]["completion_tokens"], request["body"]["max_tokens"])

    def test_the_command_line_of_vllm(self):
        folder = self.folder()
        self.write(folder, [self.request("a", prompt="x", model=str(CHAT))])
        command = ["run-batch", "-i", folder / "in.jsonl", "-o", folder / "out.jsonl", "--model", CHAT,
                   "--output-tmp-dir", "/tmp"]
        self.assertEqual(run(*command).returncode, 0)
        self.assertEqual([a["response"]["status_code"] for a in self.answers(folder)], [200])
        self.assertEqual(run(*command, "--enable-metrics").returncode, 2)

    def test_files_that_fail(self):
        folder = self.folder()
        self.write(folder, [self.request("a", prompt="x")])
        for pattern, i, o in [(b"nowhere: cannot open", folder / "nowhere", folder / "o"),
                              (b"/no/where: cannot open", folder / "in.jsonl", "/no/where"),
                              (b"/dev/full: cannot write", folder / "in.jsonl", "/dev/full")]:
            result = run("run-batch", CHAT, "-i", i, "-o", o, "--served-model-name", "m")
            self.assertEqual((result.returncode, result.stdout), (1, b""))
            self.assertIn(pattern, result.stderr)
            self.assertEqual(result.stderr.count(b"\n"), 1)

    def test_an_empty_batch(self):
        folder = self.folder()
        self.write(folder, ["", "  "])
        self.batch(folder)
        self.assertEqual(self.answers(folder), [])

    def test_wrong_command_lines(self):
        for arguments in [["M"], ["M", "-i", "f"], ["M", "x", "-i", "f", "-o", "f"], ["-i", "f", "-o", "f"]]:
            self.assertEqual(run("run-batch", *arguments).returncode, 2)


if __name__ == "__main__":
    tap.main()
