#!/usr/bin/env python3
"""Runs the program as a user does and looks at what comes out: text, errors, exit codes, signals.

PHIDELITY names the program, PHI_TESTS the tests' folder (for golden/, random checkpoints without a
tokenizer), PHI_MODELS the bundled models. Prints TAP.
"""
import json
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import tap  # noqa: E402

PROGRAM = os.environ["PHIDELITY"]
GOLDEN = Path(os.environ["PHI_TESTS"]) / "golden"
MODELS = Path(os.environ["PHI_MODELS"])
CODE, CHAT = MODELS / "phi-tiny-code", MODELS / "phi3-tiny-chat"
RANDOM = GOLDEN / "phi-head64"
COMMANDS = ("generate", "chat", "serve", "tokenize", "detokenize", "template", "logits", "inspect",
            "check-accuracy", "align", "run-batch")


def run(*arguments, stdin=b"", timeout=120, **options):
    if stdin is not None:
        options["input"] = stdin
    return subprocess.run([PROGRAM, *map(str, arguments)], stdout=options.pop("stdout", subprocess.PIPE),
                          stderr=subprocess.PIPE, timeout=timeout, **options)


def start(*arguments, **options):
    return subprocess.Popen([PROGRAM, *map(str, arguments)], stdin=options.pop("stdin", subprocess.DEVNULL),
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)


def without_warnings(error):
    """Standard error without its warnings: the random checkpoints have no tokenizer, which is one."""
    return re.sub(r"(?m)^phidelity: warning: .*\n", "", error.decode(errors="replace"))


class Case(unittest.TestCase):
    def succeeds(self, *arguments, **options):
        result = run(*arguments, **options)
        self.assertEqual(result.returncode, 0, result.stderr.decode(errors="replace"))
        return result.stdout

    def fails(self, code, pattern, *arguments, **options):
        """One error line that matches, nothing on standard output, the exit code."""
        result = run(*arguments, **options)
        error = without_warnings(result.stderr)
        self.assertEqual(result.returncode, code, error)
        self.assertRegex(error, r"\Aphidelity: error: [^\n]*\n\Z")
        self.assertRegex(error, pattern)
        self.assertEqual(result.stdout, b"")

    def folder(self):
        folder = Path(tempfile.mkdtemp(prefix="phidelity-test-"))
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        return folder


class CommandLine(Case):
    def test_version(self):
        self.assertRegex(self.succeeds("--version"), rb"\Aphidelity \d+\.\d+\.\d+\n\Z")

    def test_help_of_each_command(self):
        overview = self.succeeds("--help").decode()
        self.assertEqual(overview, self.succeeds("help").decode())
        for command in COMMANDS:
            self.assertIn(f"\n  {command} ", overview)
            text = self.succeeds(command, "--help").decode()
            self.assertEqual(text, self.succeeds("help", command).decode())
            self.assertTrue(text.startswith(f"usage: phidelity {command} MODEL"), text[:80])
            self.assertLessEqual(max(map(len, text.splitlines())), 100)

    def test_wrong_command_lines(self):
        for pattern, arguments in [
            ("a command is missing", []),
            ("unknown command 'genrate' .did you mean generate", ["genrate"]),
            ("MODEL", ["generate"]),
            ("a prompt is missing", ["generate", "M"]),
            ("--temprature .did you mean --temperature", ["generate", "M", "--temprature", "1"]),
            ("--top-p must be above 0 and at most 1", ["generate", "M", "-p", "x", "--top_p=0"]),
            ("--max-tokens needs a value", ["generate", "M", "-p", "x", "--max-tokens"]),
            ("unexpected argument 'x'", ["generate", "M", "x"]),
            ("--logprobs", ["generate", "M", "-p", "x", "--logprobs", "3"]),
            ("--dtype must be one of", ["inspect", "M", "--dtype", "int3"]),
            ("--out FILE is missing", ["logits", "M", "--tokens", "1"]),
            ("give one of", ["logits", "M", "--tokens", "1", "-p", "x", "--out", "f"]),
            ("messages are missing", ["template", "M"]),
            ("ids are missing", ["detokenize", "M"]),
            ("--n must be 1", ["chat", "M", "--n", "2"]),
        ]:
            with self.subTest(arguments):
                self.fails(2, pattern, *arguments)

    def test_full_disk(self):
        if not os.path.exists("/dev/full"):
            self.skipTest("no /dev/full")
        for arguments in (["--version"], ["generate", "--help"],
                          ["generate", RANDOM, "--prompt-token-ids", "1 2", "--print-token-ids"]):
            with open("/dev/full", "wb") as full:
                result = run(*arguments, stdout=full)
            self.assertEqual(result.returncode, 1)
            self.assertIn(b"phidelity: error: cannot write to standard output", result.stderr)


class BadFolders(Case):
    def copy(self):
        folder = self.folder()
        for file in RANDOM.iterdir():
            shutil.copy(file, folder)
        return folder

    def refused(self, folder, pattern):
        for command in (["inspect", folder], ["generate", folder, "--prompt-token-ids", "1"]):
            self.fails(1, pattern, *command)

    def test_no_folder(self):
        self.refused("/nonexistent/model", "/nonexistent/model")

    def test_a_file(self):
        self.refused(RANDOM / "config.json", "config.json")

    def test_no_config(self):
        self.refused(self.folder(), "config.json")

    def test_broken_config(self):
        folder = self.copy()
        (folder / "config.json").write_text('{"model_type": "phi", ')
        self.refused(folder, "config.json.*JSON")

    def test_other_architecture(self):
        folder = self.copy()
        (folder / "config.json").write_text('{"model_type": "phi4flash"}')
        self.refused(folder, "model_type.*phi4flash")

    def test_no_weights(self):
        folder = self.copy()
        (folder / "model.safetensors").unlink()
        self.refused(folder, "safetensors")

    def test_lfs_pointer(self):
        folder = self.copy()
        (folder / "model.safetensors").write_text(
            "version https://git-lfs.github.com/spec/v1\noid sha256:" + "0" * 64 + "\nsize 123\n")
        self.refused(folder, "model.safetensors.*LFS")

    def test_truncated_weights(self):
        folder = self.copy()
        weights = (folder / "model.safetensors").read_bytes()
        (folder / "model.safetensors").write_bytes(weights[:-1])
        self.refused(folder, "model.safetensors")

    def test_nan_weights(self):
        folder = self.copy()
        weights = bytearray((folder / "model.safetensors").read_bytes())
        n = struct.unpack("<Q", weights[:8])[0]
        header = json.loads(weights[8:8 + n])
        begin, end = header["model.final_layernorm.weight"]["data_offsets"]
        weights[8 + n + begin:8 + n + end] = b"\xff\x7f" * ((end - begin) // 2)
        (folder / "model.safetensors").write_bytes(weights)
        result = run("generate", folder, "--prompt-token-ids", "1", "--no-stats")
        self.assertEqual(result.returncode, 1)
        self.assertRegex(result.stderr, rb"(?i)phidelity: error: .*NaN")

    def test_unreadable(self):
        if os.geteuid() == 0:
            self.skipTest("root reads everything")
        folder = self.copy()
        (folder / "model.safetensors").chmod(0)
        self.refused(folder, "model.safetensors.*ermission")

    def test_no_tokenizer(self):
        self.fails(1, "tokenizer", "tokenize", RANDOM, "-p", "x")
        self.fails(1, "tokenizer", "generate", RANDOM, "-p", "x")


class Generate(Case):
    def ids(self, *arguments, prompt="1 2 3"):
        return self.succeeds("generate", RANDOM, "--prompt-token-ids", prompt, "--print-token-ids",
                             "--ignore-eos", *arguments).decode()

    def test_ids_and_length(self):
        out = self.ids("--max-tokens", "9", "--temperature", "0")
        self.assertRegex(out, r"\A\d+( \d+){8}\n\Z")
        self.assertEqual(len(self.ids().split()), 16)  # vLLM's default

    def test_closing_line(self):
        result = run("generate", RANDOM, "--prompt-token-ids", "1 2 3", "--print-token-ids",
                     "--ignore-eos", "--max-tokens", "5")
        self.assertRegex(without_warnings(result.stderr),
                         r"\Aphidelity: 3 prompt tokens, [\d.]+/s; 5 output tokens, [\d.]+/s; "
                         r"first token after [\d.]+ s; finish: length\n\Z")
        quiet = run("generate", RANDOM, "--prompt-token-ids", "1", "--no-stats")
        self.assertEqual(without_warnings(quiet.stderr), "")

    def test_seeds(self):
        first = self.ids("--seed", "11", "--max-tokens", "20")
        self.assertEqual(first, self.ids("--seed", "11", "--max-tokens", "20"))
        self.assertNotEqual(first, self.ids("--seed", "12", "--max-tokens", "20"))

    def test_neighbours_do_not_matter(self):
        alone = [self.ids("--seed", "5", prompt=p) for p in ("1 2 3", "4 5", "6")]
        together = self.succeeds("generate", RANDOM, "--print-token-ids", "--ignore-eos", "--seed", "5",
                                 "--prompt-token-ids", "1 2 3", "--prompt-token-ids", "4,5",
                                 "--prompt-token-ids", "[6]").decode()
        self.assertEqual(together, "".join(alone))

    def test_prefix_caching_changes_nothing(self):
        prompt = " ".join(str(i % 200) for i in range(70))
        arguments = ["--seed", "5", "--max-num-seqs", "1"]
        for _ in range(2):
            arguments += ["--prompt-token-ids", prompt]
        cached, plain = self.ids(*arguments, prompt=prompt), \
            self.ids(*arguments, "--no-enable-prefix-caching", prompt=prompt)
        self.assertEqual(cached, plain)
        self.assertEqual(len(set(cached.splitlines())), 1)

    def test_several_answers(self):
        result = run("generate", RANDOM, "--prompt-token-ids", "1 2", "--n", "3", "--print-token-ids",
                     "--ignore-eos", "--seed", "3", "--max-tokens", "6")
        lines = result.stdout.decode().splitlines()
        self.assertEqual([len(line.split()) for line in lines], [6, 6, 6])
        self.assertEqual(len(set(lines)), 3)
        self.assertEqual(len(re.findall(r"--- prompt 1 of 1, answer \d of 3", result.stderr.decode())), 3)

    def test_stop_token_ids(self):
        free = self.ids("--temperature", "0", "--max-tokens", "12").split()
        stop = free[4]
        stopped = self.ids("--temperature", "0", "--max-tokens", "12", "--stop-token-ids", stop).split()
        self.assertEqual(stopped, free[:free.index(stop) + 1])

    def test_allowed_ids_and_bias(self):
        self.assertEqual(set(self.ids("--allowed-token-ids", "7").split()), {"7"})
        self.assertEqual(set(self.ids("--logit-bias", "9:100").split()), {"9"})
        self.assertEqual(set(self.ids("--logit-bias", '{"8": 100.0}').split()), {"8"})

    def test_json(self):
        out = self.succeeds("generate", RANDOM, "--prompt-token-ids", "1 2 3", "--json", "--ignore-eos",
                            "--max-tokens", "4", "--temperature", "0", "--logprobs", "2",
                            "--prompt-logprobs", "1")
        value = json.loads(out)
        answer = value["outputs"][0]
        self.assertEqual(value["prompt_token_ids"], [1, 2, 3])
        self.assertEqual(len(answer["token_ids"]), 4)
        self.assertEqual(answer["finish_reason"], "length")
        self.assertEqual(answer["logprobs"][0][0]["token_id"], answer["token_ids"][0])
        self.assertEqual(answer["logprobs"][0][0]["rank"], 1)
        self.assertIsNone(value["prompt_logprobs"][0])
        self.assertEqual(value["prompt_logprobs"][1][0]["token_id"], 2)

    def test_jsonl_prompts(self):
        file = self.folder() / "prompts.jsonl"
        file.write_text("[1, 2, 3]\n[4]\n")
        out = self.succeeds("generate", RANDOM, "-f", file, "--jsonl", "--print-token-ids", "--ignore-eos",
                            "--temperature", "0").decode()
        self.assertEqual(out, self.ids("--temperature", "0") + self.ids("--temperature", "0", prompt="4"))

    def test_refused_requests(self):
        for pattern, arguments in [
            ("(?i)token|vocab", ["--prompt-token-ids", "99999999"]),
            ("(?i)max_model_len|context|long", ["--prompt-token-ids", "1 2 3", "--max-model-len", "2"]),
            ("(?i)greedy|temperature", ["--prompt-token-ids", "1", "--n", "2", "--temperature", "0"]),
            ("(?i)empty|at least", ["--prompt-token-ids", ""]),
            ("--logit-bias", ["--prompt-token-ids", "1", "--logit-bias", "x"]),
            ("(?i)logit_bias", ["--prompt-token-ids", "1", "--logit-bias", "99999999:1"]),
        ]:
            with self.subTest(arguments):
                self.fails(1, pattern, "generate", RANDOM, *arguments)

    def test_dummy_weights(self):
        folder = self.folder()
        shutil.copy(RANDOM / "config.json", folder)
        command = ["generate", folder, "--prompt-token-ids", "1", "--print-token-ids", "--load-format", "dummy",
                   "--temperature", "0", "--ignore-eos"]
        one = self.succeeds(*command, "--seed", "1")
        self.assertEqual(one, self.succeeds(*command, "--seed", "1"))
        self.assertNotEqual(one, self.succeeds(*command, "--seed", "2"))

    def test_closed_pipe_is_silent(self):
        process = start("generate", RANDOM, "--prompt-token-ids", "1", "--print-token-ids", "--ignore-eos",
                        "--max-tokens", "0", "--no-stats")
        process.stdout.read(1)
        process.stdout.close()
        self.assertIn(process.wait(60), (-signal.SIGPIPE, 0))
        self.assertEqual(without_warnings(process.stderr.read()), "")

    def test_interrupt(self):
        folder = self.folder()  # a context long enough to be interrupted in
        config = json.loads((RANDOM / "config.json").read_text())
        config["max_position_embeddings"] = 200000
        (folder / "config.json").write_text(json.dumps(config))
        process = start("generate", folder, "--load-format", "dummy", "--prompt-token-ids", "1",
                        "--print-token-ids", "--ignore-eos", "--max-tokens", "0")
        first = process.stdout.read(1)
        process.send_signal(signal.SIGINT)
        rest, error = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130)
        self.assertTrue((first + rest).endswith(b"\n"))
        self.assertIn(b"finish: abort", error)


class Logits(Case):
    def read(self, path):
        data = path.read_bytes()
        n = struct.unpack("<Q", data[:8])[0]
        self.assertEqual(n % 8, 0)
        header = json.loads(data[8:8 + n])
        return {name: (t["dtype"], t["shape"], data[8 + n + t["data_offsets"][0]:8 + n + t["data_offsets"][1]])
                for name, t in header.items()}

    def test_file(self):
        out = self.folder() / "out.safetensors"
        self.assertEqual(self.succeeds("logits", RANDOM, "--tokens", "1 2 3", "--out", out), b"")
        tensors = self.read(out)
        config = json.loads((RANDOM / "config.json").read_text())
        dtype, shape, data = tensors["input_ids"]
        self.assertEqual((dtype, shape, struct.unpack("<3q", data)), ("I64", [3], (1, 2, 3)))
        dtype, shape, data = tensors["logits"]
        self.assertEqual((dtype, shape, len(data)), ("F32", [3, config["vocab_size"]], 12 * config["vocab_size"]))
        row = struct.unpack(f"<{config['vocab_size']}f", data[-4 * config["vocab_size"]:])
        best = run("generate", RANDOM, "--prompt-token-ids", "1 2 3", "--temperature", "0", "--max-tokens", "1",
                   "--print-token-ids", "--ignore-eos").stdout
        self.assertEqual(int(best), row.index(max(row)))

    def test_unwritable(self):
        self.fails(1, "/nonexistent/x", "logits", RANDOM, "--tokens", "1", "--out", "/nonexistent/x")


class Inspect(Case):
    def test_json_and_text(self):
        config = json.loads((RANDOM / "config.json").read_text())
        value = json.loads(self.succeeds("inspect", RANDOM, "--json", "--max-model-len", "64"))
        self.assertEqual(value["architecture"], "PhiForCausalLM")
        self.assertEqual(value["vocab_size"], config["vocab_size"])
        self.assertEqual(value["plan"]["max_model_len"], 64)
        per_token = 2 * 2 * value["layers"] * value["kv_heads"] * value["head_dim"]
        self.assertEqual(value["plan"]["kv_bytes_per_token"], per_token)
        blocks = ("inspect", RANDOM, "--json", "--num-gpu-blocks-override", "3", "--block-size", "16")
        self.assertEqual(json.loads(self.succeeds(*blocks))["plan"]["kv_tokens"], 48)
        little = json.loads(self.succeeds("inspect", RANDOM, "--json", "--gpu-memory-utilization", "0.02"))
        much = json.loads(self.succeeds("inspect", RANDOM, "--json", "--gpu-memory-utilization", "0.04"))
        self.assertLess(little["plan"]["kv_bytes"], much["plan"]["kv_bytes"])
        text = self.succeeds("inspect", RANDOM).decode()
        for line in ("architecture", "parameters", "KV cache", "stop ids", "instruction set", "threads"):
            self.assertRegex(text, rf"(?m)^{line} +\S")

    def test_without_weights(self):
        """From config.json alone, the same: what would be mapped, converted, and planned."""
        memory = ("--json", "--kv-cache-memory-bytes", "4194304", "--threads", "1")
        for model in (CODE, CHAT, *sorted(path.parent for path in GOLDEN.glob("*/config.json"))):
            bare = self.folder()
            for file in Path(model).iterdir():
                if file.name.endswith((".json", ".jinja")) and "index" not in file.name:
                    shutil.copy(file, bare)
            for more in ([], ["--dtype", "float32"], ["--dtype", "bfloat16"], ["--dtype", "float16"],
                         ["--quantization", "w8a8"], ["--quantization", "w4a8", "--no-quantize-lm-head"]):
                with self.subTest(model=model, more=more):
                    whole = run("inspect", model, *memory, *more)
                    counted = run("inspect", bare, "--load-format", "dummy", *memory, *more)
                    self.assertEqual(counted.returncode, whole.returncode, counted.stderr)
                    if whole.returncode == 0:  # not every width can be cut into groups
                        self.assertEqual(json.loads(counted.stdout), json.loads(whole.stdout))
                        self.assertGreater(json.loads(whole.stdout)["plan"]["kv_tokens"], 0)
        text = self.succeeds("inspect", CODE, "--load-format", "dummy")
        self.assertEqual(text, self.succeeds("inspect", CODE))

    def test_instruction_set(self):
        forced = dict(os.environ, PHI_ISA="ref")
        self.assertEqual(json.loads(self.succeeds("inspect", RANDOM, "--json", env=forced))["isa"], "ref")
        wrong = dict(os.environ, PHI_ISA="abacus")
        self.fails(1, "abacus", "inspect", RANDOM, env=wrong)


class Text(Case):
    """What needs a tokenizer: the bundled models."""

    def setUp(self):
        for model in (CODE, CHAT):
            if not (model / "tokenizer.json").exists():
                self.skipTest(f"no {model}")

    def test_tokenize_round_trip(self):
        text = "def f(x):\n    return 'héllo 🦙' + \"\\t\"  # end\n"
        ids = self.succeeds("tokenize", CODE, "-p", text).decode()
        self.assertRegex(ids, r"\A\d+( \d+)*\n\Z")
        self.assertEqual(self.succeeds("detokenize", CODE, "--tokens", ids).decode(), text + "\n")
        self.assertEqual(self.succeeds("detokenize", CODE, "-", stdin=ids.encode()).decode(), text + "\n")
        self.assertEqual(json.loads(self.succeeds("detokenize", CODE, "--jsonl", "--tokens", ids)), text)

    def test_tokenize_sources(self):
        file = self.folder() / "lines.txt"
        file.write_bytes(b"one two\n\nthree")
        lines = self.succeeds("tokenize", CODE, "-f", file, "--lines").decode().split("\n")
        self.assertEqual(len(lines), 4)
        self.assertEqual(lines[1], "")
        self.assertEqual(lines[0] + "\n", self.succeeds("tokenize", CODE, "-p", "one two").decode())
        whole = self.succeeds("tokenize", CODE, "-f", file)
        self.assertEqual(whole, self.succeeds("tokenize", CODE, "-", stdin=file.read_bytes()))
        file.write_text('"one two"\n"a\\nb\\u0000c"\n')
        jsonl = self.succeeds("tokenize", CODE, "-f", file, "--jsonl").decode().splitlines()
        self.assertEqual(jsonl[0], lines[0])
        self.assertEqual(jsonl[1] + "\n", self.succeeds("tokenize", CODE, "-", stdin=b"a\nb\0c").decode())

    def test_nul_bytes(self):
        one = self.succeeds("tokenize", CODE, "-", stdin=b"a\0b").decode().split()
        self.assertEqual(self.succeeds("detokenize", CODE, "--tokens", " ".join(one)), b"a\0b\n")
        with_nul = self.succeeds("generate", CODE, "-", "--temperature", "0", stdin=b"x = 1\0")
        self.assertTrue(with_nul.endswith(b"\n"))

    def test_invalid_utf8(self):
        self.fails(1, "(?i)utf-8", "tokenize", CODE, "-", stdin=b"ab\xff")
        self.fails(1, "(?i)utf-8", "generate", CODE, "-", stdin=b"ab\xff")

    def test_generate_streams(self):
        process = start("generate", CODE, "-p", "def fibonacci(n):", "--temperature", "0", "--max-tokens", "200",
                        "--ignore-eos", "--no-stats")
        pieces = []
        while data := os.read(process.stdout.fileno(), 65536):
            pieces.append(data)
        process.wait(60)
        self.assertGreater(len(pieces), 5)
        whole = self.succeeds("generate", CODE, "-", "--temperature", "0", "--max-tokens", "200", "--ignore-eos",
                              stdin=b"def fibonacci(n):")
        self.assertEqual(b"".join(pieces), whole)

    def test_stop_strings(self):
        command = ["generate", CODE, "-p", "def fibonacci(n):", "--temperature", "0", "--max-tokens", "60",
                   "--ignore-eos"]
        free = self.succeeds(*command).decode()[:-1]
        stop = free[len(free) // 2:len(free) // 2 + 3]
        cut = free[:free.index(stop)]
        self.assertEqual(self.succeeds(*command, "--stop", stop).decode(), cut + "\n")
        self.assertEqual(self.succeeds(*command, "--stop", stop, "--include-stop-str-in-output").decode(),
                         cut + stop + "\n")
        value = json.loads(self.succeeds(*command, "--stop", stop, "--json"))["outputs"][0]
        self.assertEqual((value["finish_reason"], value["stop_reason"], value["text"]), ("stop", stop, cut))

    def test_generate_lines(self):
        out = self.succeeds("generate", CODE, "-", "--lines", "--temperature", "0", "--print-token-ids",
                            "--ignore-eos", stdin=b"import os\ndef main():\n").decode().splitlines()
        self.assertEqual([len(line.split()) for line in out], [16, 16])

    def test_template(self):
        file = self.folder() / "messages.json"
        file.write_text('[{"role": "user", "content": "Hi"}]')
        text = self.succeeds("template", CHAT, "-f", file).decode()
        self.assertEqual(text, "<|user|>Hi<|end|><|assistant|>")
        file.write_text('{"messages": [{"role": "user", "content": "Hi"}], "add_generation_prompt": false}')
        self.assertNotIn("<|assistant|>", self.succeeds("template", CHAT, "-f", file).decode())
        ids = self.succeeds("template", CHAT, "-f", file, "--add-generation-prompt", "--print-token-ids")
        self.assertEqual(self.succeeds("detokenize", CHAT, "--tokens", ids.decode()).decode(), text + "\n")
        file.write_text('{"content": "Hi"}')
        self.fails(1, "messages.json.*array", "template", CHAT, "-f", file)
        self.fails(1, "JSON", "template", CHAT, "-f", "-", stdin=b"[")
        self.fails(1, "template", "template", CODE, "-f", "-", stdin=b"[]")

    def test_chat_without_template(self):
        self.fails(1, "no chat template", "chat", CODE, "-p", "Hi")

    def test_chat_lines(self):
        single = self.succeeds("chat", CHAT, "-p", "What is 2 plus 3?", "--temperature", "0")
        self.assertRegex(single, rb"\A[^\n]+\n\Z")
        out = self.succeeds("chat", CHAT, "--temperature", "0",
                            stdin=b"What is 2 plus 3?\n/reset\nWhat is 2 plus 3?\n/exit\nnever\n")
        self.assertEqual(out, single * 2)

    def test_chat_history_and_system(self):
        file = self.folder() / "messages.json"
        first = self.succeeds("chat", CHAT, "--system", "Be brief.", "--temperature", "0",
                              "-p", "What is 2 plus 3?").decode()[:-1]
        turns = self.succeeds("chat", CHAT, "--system", "Be brief.", "--temperature", "0",
                              stdin=b"What is 2 plus 3?\nAnd plus 4?\n").decode().splitlines()
        file.write_text(json.dumps([
            {"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is 2 plus 3?"},
            {"role": "assistant", "content": first}, {"role": "user", "content": "And plus 4?"}]))
        ids = self.succeeds("template", CHAT, "-f", file, "--print-token-ids").decode()
        second = self.succeeds("generate", CHAT, "--prompt-token-ids", ids, "--temperature", "0",
                               "--max-tokens", "0").decode()[:-1]
        self.assertEqual(turns, [first, second])

    def test_chat_interrupts(self):
        """At a terminal: Ctrl-C stops an answer and not the program; twice at the prompt leaves."""
        master, slave = pty.openpty()
        process = subprocess.Popen([PROGRAM, "chat", str(CHAT), "--ignore-eos", "--max-tokens", "0"],
                                   stdin=slave, stdout=slave, stderr=slave)
        os.close(slave)
        self.addCleanup(os.close, master)
        seen = b""

        def wait_for(pattern):
            nonlocal seen
            end = time.monotonic() + 60
            while not re.search(pattern, seen):
                self.assertLess(time.monotonic(), end, seen)
                if select.select([master], [], [], 0.1)[0]:
                    seen += os.read(master, 65536)
            seen = b""

        wait_for(rb"> ")
        os.write(master, b"What is 2 plus 3?\n")
        wait_for(rb"\n.{3}")
        process.send_signal(signal.SIGINT)
        wait_for(rb"> ")
        self.assertIsNone(process.poll())
        os.write(master, b"/reset\n")
        wait_for(rb"> ")
        process.send_signal(signal.SIGINT)
        wait_for(rb"again")
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(60), 0)


if __name__ == "__main__":
    tap.main()
