#!/usr/bin/env python3
"""docs/DEPLOYMENT.md against the program: its commands run, in order, on the bundled models, and print what
it shows; its flags and links exist.

PHIDELITY names the program; PHI_PYTHON a Python for which the package was built, in PYTHONPATH, if it was. What
needs other packages (ELSEWHERE) is run by tests/oracle. Prints TAP.
"""
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import tap  # noqa: E402
from docs import guide  # noqa: E402
from server import serving  # noqa: E402

PROGRAM = os.environ["PHIDELITY"]
ROOT = Path(__file__).resolve().parents[2]
GUIDE = ROOT / "docs" / "DEPLOYMENT.md"

# Commands of packages that `make check` does not have; tests/oracle/test_deployment_oracle.py runs them.
ELSEWHERE = ("python3 -m phidelity.reference ", "lm_eval ", "ais_bench ")

# Fenced blocks by their first line, and why no test can run them. Their syntax is checked.
NOT_RUN = {
    "sudo apt-get install git make": "installs packages and builds: scripts/deps.sh and make, which this test comes from",
    "pip install .": "builds a wheel: tests of python/ run from the build folder",
    "pip install huggingface_hub": "downloads gigabytes",
    "sudo cp deploy/nginx.conf /etc/nginx/conf.d/phidelity.conf": "changes the system; tests/server/test_deploy.py reads the file",
    "docker build -f deploy/Dockerfile -t registry.example/phidelity:0.1.0 .": "needs Docker and a cluster; tests/server/test_deploy.py reads the files",
}

# Flags in the prose of what is not the program: lm_eval, ais_bench, python -m phidelity.eval and .nightly.
OTHERS_FLAGS = {"tasks", "include_path", "num_fewshot", "fewshot_as_multiturn", "apply_chat_template", "datasets",
                "gsm8k", "dry-run", "debug"}


def elsewhere(command):
    return command.text.startswith(ELSEWHERE)


class Deployment(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.commands, cls.fences, cls.stray = guide.read(GUIDE)
        cls.text = GUIDE.read_text()

    def test_commands(self):
        here = [c for c in self.commands if not elsewhere(c)]
        if "PHI_PYTHON" not in os.environ:
            print("# without the Python package: its commands are left out")
            here = [c for c in here if not c.text.startswith("python3 -m phidelity.")]
        self.assertGreater(len(here), 30)
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            # In the guide transformers writes it; this one it wrote earlier.
            shutil.copy(ROOT / "deploy" / "nightly" / "phi3-tiny-chat.safetensors", folder / "reference.safetensors")
            programs = {"phidelity": shlex.quote(PROGRAM),
                        "python3": shlex.quote(os.environ.get("PHI_PYTHON", sys.executable))}
            results = guide.replay(here, folder, programs, timeout_s=10 * serving.PATIENCE_S)
        for command, (code, printed) in zip(here, results):
            with self.subTest(f"{GUIDE.name}:{command.line}: {command.text}"):
                self.assertEqual(code, 0, printed)
                if command.output:
                    self.assertTrue(guide.matches(command.output, printed),
                                    "shown:\n{}\nprinted:\n{}".format("\n".join(command.output), printed))

    def test_outputs_match(self):
        """A table's columns may be wider than in the guide; everything else is as it is shown."""
        shown = ["...", "| Failed Requests  | 0   |", "took ... s"]
        for row, matches in (("| Failed Requests  | 0   |", True), ("| Failed Requests   | 0     |", True),
                             ("| Failed Requests  | 1   |", False), ("|  Failed Requests  | 0   |", False)):
            self.assertEqual(guide.matches(shown, f"start\n{row}\ntook 3.5 s\n"), matches, row)

    def test_commands_of_other_suites(self):
        """Nothing is left out but what the oracle suite runs."""
        left = [c for c in self.commands if elsewhere(c)]
        for start in ELSEWHERE:
            self.assertTrue(any(c.text.startswith(start) for c in left), start)

    def test_blocks_that_do_not_run(self):
        self.assertEqual(self.stray, [], "an indented block whose first line is no command")
        self.assertEqual({f.lines[0] for f in self.fences if f.language == "sh"}, set(NOT_RUN))
        self.assertEqual({f.language for f in self.fences} - {"sh", "yaml", "json"}, set())
        for fence in self.fences:
            if fence.language == "sh":
                checked = subprocess.run(["bash", "-n"], input="\n".join(fence.lines), text=True, capture_output=True)
                self.assertEqual(checked.returncode, 0, f"line {fence.line}: {checked.stderr}")

    def test_flags(self):
        """A flag in the prose is one of the program's; those of commands have been tried."""
        known = set()
        commands = ("serve", "inspect", "generate", "check-accuracy", "align", "quantize", "bench serve", "bench latency")
        for command in commands:
            text = subprocess.run([PROGRAM, *command.split(), "--help"], capture_output=True, text=True, check=True).stdout
            known |= {f.replace("[no-]", "") for f in re.findall(r"--(\[no-\]\S+|[a-z][\w-]+)", text)}
        used = {f for code in re.findall(r"`([^`\n]+)`", self.text) for f in re.findall(r"--(?:no-)?([a-z][\w-]+)", code)}
        self.assertGreater(len(used), 10)
        self.assertEqual(used - known - OTHERS_FLAGS, set())

    def test_links(self):
        anchors = {re.sub(r"[^\w -]", "", h).strip().lower().replace(" ", "-")
                   for h in re.findall(r"(?m)^#+ (.*)$", self.text)}
        links = re.findall(r"\]\(([^)]+)\)", self.text)
        self.assertGreater(len(links), 10)
        for link in links:
            file, _, anchor = link.partition("#")
            if link.startswith("https:"):
                continue
            self.assertTrue(not file or (GUIDE.parent / file).exists(), link)
            self.assertTrue(file or anchor in anchors, link)


if __name__ == "__main__":
    tap.main()
