#!/usr/bin/env python3
"""Ctrl-C while the engine works, in one thread or beside others; fork; the end of the interpreter.

Each case is a script in a process of its own. PYTHONPATH names the built package. Prints TAP.
"""
import os
import signal
import subprocess
import sys
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import tap

BEGIN = f"""
import os, signal, sys, threading, time
from phidelity import LLM, EngineClosedError, SamplingParams
llm = LLM({str(Path(os.environ["PHI_MODELS"]) / "phi-tiny-code")!r})
LONG = SamplingParams(max_tokens=400, ignore_eos=True, seed=1)
SHORT = SamplingParams(temperature=0, max_tokens=4)
short = lambda: llm.generate("def f(", SHORT, use_tqdm=False)[0].outputs[0].token_ids
present = lambda: [m.value for m in llm.get_metrics()[:3]]
def ready(): print("ready", flush=True)
"""


class Interrupts(unittest.TestCase):
    def script(self, text):
        process = subprocess.Popen([sys.executable, "-c", BEGIN + text], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def ends(self, process, expected, code=0):
        out, error = process.communicate(timeout=120)
        self.assertEqual((process.returncode, out.split()), (code, expected.split()), error)
        return error

    def interrupted(self, process):
        self.assertEqual(process.stdout.readline(), "ready\n")
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)

    def test_ctrl_c_cancels_and_the_engine_goes_on(self):
        process = self.script("""
before = short()
for _ in range(2):
    ready()
    try:
        llm.generate(["def f("] * 300, LONG, use_tqdm=False)
    except KeyboardInterrupt:
        start = time.monotonic()
        assert present() == [0, 0, 0], present()
        assert short() == before
        print("usable", flush=True)
""")
        for _ in range(2):
            self.interrupted(process)
            self.assertEqual(process.stdout.readline(), "usable\n")
        self.ends(process, "")

    def test_ctrl_c_in_a_hurry(self):
        """A second one may come while the first is dealt with: nothing hangs, and close() tidies up."""
        process = self.script("""
def again(signum, frame): raise KeyboardInterrupt
signal.signal(signal.SIGINT, again)
ready()
try:
    llm.generate(["def f("] * 300, LONG, use_tqdm=False)
except KeyboardInterrupt:
    pass
while True:
    try:
        llm.close()
        break
    except KeyboardInterrupt:
        pass
print("closed")
""")
        self.interrupted(process)
        process.send_signal(signal.SIGINT)
        self.ends(process, "closed")

    def test_ctrl_c_without_a_handler_of_ones_own_ends_the_script(self):
        process = self.script("ready()\nllm.generate(['def f('] * 300, LONG, use_tqdm=False)")
        self.interrupted(process)
        self.assertIn("KeyboardInterrupt", self.ends(process, "", -signal.SIGINT))

    def test_a_handler_runs_while_the_engine_works(self):
        process = self.script("""
signal.signal(signal.SIGINT, lambda *_: print("seen", flush=True))
ready()
outputs = llm.generate(["def f("] * 24, LONG, use_tqdm=False)
print(all(o.finished and o.outputs[0].finish_reason == "length" for o in outputs))
""")
        self.interrupted(process)
        self.ends(process, "seen True")

    def test_ctrl_c_leaves_other_threads_alone(self):
        process = self.script("""
found = []
thread = threading.Thread(target=lambda: found.append(llm.generate(["def f("] * 8, LONG, use_tqdm=False)))
thread.start()
ready()
try:
    llm.generate(["def f("] * 300, LONG, use_tqdm=False)
except KeyboardInterrupt:
    print("mine")
thread.join()
print(len(found[0]), {o.outputs[0].finish_reason for o in found[0]})
""")
        self.interrupted(process)
        self.ends(process, "mine 8 {'length'}")

    def test_fork(self):
        self.ends(self.script("""
short()
if os.fork() == 0:
    try:
        short()
    except EngineClosedError as e:
        assert "fork" in str(e)
        llm.close()
        del llm
        sys.exit(7)
pid, status = os.wait()
assert os.waitstatus_to_exitcode(status) == 7
print(len(short()))
"""), "4")

    def test_end_of_the_interpreter(self):
        """With an LLM alive, and with one whose daemon thread is somewhere inside the library."""
        self.ends(self.script("short(); print('done')"), "done")
        for delay_s in (0, 0.003, 0.01, 0.1, 0.3):
            self.ends(self.script(f"""
threading.Thread(target=lambda: llm.generate(["def f("] * 300, LONG, use_tqdm=False), daemon=True).start()
time.sleep({delay_s})
print("done")
"""), "done")


if __name__ == "__main__":
    tap.main()
