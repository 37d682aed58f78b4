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

    def test_an_answer_that_ends_early_is_no_figure(self):
        with self.assertRaisesRegex(SystemExit, r"2 answers of 4 tokens were asked for, not \[3, 3\]"):
            measure.answer(Short(), 2, 3, 4)


tap.main()
