#!/usr/bin/env python3
"""bench/peers: who takes part, what is compared with what, and how answers are timed; with stand-ins for the peers.

PHIDELITY names the program, PHI_TESTS the tests' folder. Prints TAP.
"""
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
PEERS = TESTS.parent / "bench" / "peers"
sys.path[:0] = [str(TESTS), str(PEERS)]
import measure  # noqa: E402
import peers  # noqa: E402
import tap  # noqa: E402

MODEL = Path(os.environ["PHI_TESTS"]) / "golden" / "phi-head64"
# A Python that answers as vllm_worker.py would: SCRIPT MODEL THREADS startup|speed SHAPES.
STAND_IN = """#!/bin/sh
case $4 in
startup) echo 7 ;;
speed) echo '{"decode": 1, "prefill": 2, "x2": 3}' ;;
esac
"""

# A phidelity whose runs take 2 s each, and which writes down how it was called.
BENCH_STAND_IN = """#!/bin/sh
echo "$*" >> "$0.log"
while [ "$1" != --output-json ]; do shift; done
echo '{"avg_latency": 2, "decode_tok_s": 20, "prefill_tok_s": 30, "prefill_peak_ratio": 1, "arithmetic_peak_gflops": 1,
       "decode_bandwidth_ratio": 1, "read_bandwidth_gbs": 1}' > "$2"
"""


class TestPrograms(unittest.TestCase):
    def test_an_engine_without_its_environment_is_left_out(self):
        folder = Path(tempfile.mkdtemp(prefix="phidelity-peers-"))
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        python = folder / peers.VENVS["vLLM"] / "bin" / "python"
        python.parent.mkdir(parents=True)
        python.write_text(STAND_IN)
        python.chmod(0o755)
        command = [sys.executable, PEERS / "peers.py", MODEL, "--program", os.environ["PHIDELITY"], "--work", folder,
                   "--venvs", folder, "--engines", "phidelity bf16,vLLM bf16,OpenVINO fp16", "--rounds", 1, "--threads", 1,
                   "--prefill", 16, "--input", 8, "--output", 4, "--requests", 2]
        result = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=300)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertRegex(result.stderr, r"left out: OpenVINO fp16, for want of .*python \(bench/peers/setup.sh openvino\)")
        self.assertRegex(result.stdout, r"\| vLLM bf16 +\| +1 \| +2 \| +3 \|")
        self.assertIn("| phidelity bf16 : vLLM bf16 |", result.stdout)
        self.assertNotIn("OpenVINO", result.stdout)


class TestPhidelity(unittest.TestCase):
    def test_all_speeds_are_of_a_second_run(self):
        folder = Path(tempfile.mkdtemp(prefix="phidelity-peers-"))
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        program = folder / "program"
        program.write_text(BENCH_STAND_IN)
        program.chmod(0o755)
        shapes = {"prefill": 512, "input": 128, "output": 64, "requests": [1, 16]}
        values = peers.Phidelity(program, "model", 2).speed(shapes)
        self.assertEqual((values["x1"], values["x16"], values["decode"]), (32, 512, 20))
        calls = (folder / "program.log").read_text().splitlines()
        self.assertTrue(all(call.endswith(" --threads 2") for call in calls), calls)
        self.assertEqual([call.split(" --output-json")[0] for call in calls], [
            f"bench latency model --batch-size {n} --num-iters-warmup 1 --num-iters 1 --input-len {n_input} "
            f"--output-len {n_output}" for n, n_input, n_output in ((1, 512, 1), (1, 128, 64), (16, 128, 64))])


class TestRatios(unittest.TestCase):
    def test_the_best_of_each_column(self):
        medians = {"phidelity w8a8": {"decode": 30, "startup": 1}, "llama.cpp Q8_0": {"decode": 20, "startup": 2},
                   "OpenVINO int8": {"decode": 10, "startup": 1.5}}
        self.assertEqual(list(peers.ratios_of(medians, ["decode", "startup"])),
                         [["phidelity w8a8 : llama.cpp Q8_0", "1.50", "2.00"],
                          ["phidelity w8a8 : OpenVINO int8", "3.00", "1.50"],
                          ["phidelity w8a8 : the best", "1.50", "1.50"]])


class Counting(measure.Stepwise):
    n_vocabulary = 1000

    def prefill(self, prompts):
        self.positions = []
        return [0 for _ in prompts]

    def step(self, position, tokens):
        self.positions.append(position)
        return [token + 1 for token in tokens]


class Short(Counting):
    def generate(self, prompts, n_output):
        return super().generate(prompts, n_output - 1)


class TestAnswers(unittest.TestCase):
    def test_steps_follow_the_prompt(self):
        engine = Counting()
        *_, answers = engine.generate([[5, 6, 7], [8, 9, 10]], 4)
        self.assertEqual((answers, engine.positions), ([[0, 1, 2, 3]] * 2, [3, 4, 5]))
        first_s, others_s = measure.answer(engine, 2, 3, 4)
        self.assertTrue(first_s > 0 and others_s > 0)

    def test_memory_is_touched_before_anything_is_measured(self):
        prompts = []

        class Seen(Counting):
            def generate(self, asked, n_output):
                prompts.append((n_output, asked))
                return super().generate(asked, n_output)
        values = measure.speed(Seen(), {"prefill": 9, "input": 5, "output": 8, "requests": [1, 3]})
        self.assertEqual([(len(asked), len(asked[0]), n) for n, asked in prompts],
                         [(3, 5, 4), (1, 9, 1), (1, 5, 8), (1, 5, 8), (3, 5, 8)])
        self.assertEqual(len({tuple(prompt) for _, asked in prompts for prompt in asked}), 9)  # each another
        self.assertEqual(list(values), ["prefill", "decode", "x1", "x3"])

    def test_an_answer_that_ends_early_is_no_figure(self):
        with self.assertRaisesRegex(SystemExit, r"2 answers of 4 tokens were asked for, not \[3, 3\]"):
            measure.answer(Short(), 2, 3, 4)


tap.main()
