#!/usr/bin/env python3
"""phidelity.eval: questions and gates that it reads and refuses, whom it says to be right, verdicts, and whole
runs over the bundled chat model, in the process and through a server. tests/oracle compares it with lm-eval.

PYTHONPATH names the built package, PHIDELITY the program, PHI_MODELS the bundled models. Prints TAP.
"""
import contextlib
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "server")]
import serving
import tap
from serving import CHAT

from phidelity import LLM
from phidelity.eval import Config, ConfigError, Score, Task, gsm8k, judge, read_config, run, table
from phidelity.eval.__main__ import main
from phidelity.eval.config import greedy_settings
from phidelity.eval.scores import mean_score
from phidelity.server_process import free_port

QUESTIONS, GATE = CHAT / "questions.jsonl", CHAT / "gate.yaml"
STRICT, FLEXIBLE = gsm8k.STRICT, gsm8k.FLEXIBLE
NONE = gsm8k.NOT_FOUND

# response, what strict extraction takes, what flexible extraction takes
EXTRACTED = [
    ("3 + 4 = 7.\n#### 7", "7", "7"),
    ("#### -1,234.50", "-1,234.50", "-1,234.50"),
    ("#### 5 and then #### 6", "5", "6"),
    ("####7", NONE, "7"),
    ("#### $7", NONE, "$7"),
    ("##### 7", "7", "7"),
    ("#### 7.", "7.", "7."),
    ("He has 12 apples and 3 pears.", NONE, "3"),
    ("It costs $1,200.", NONE, "$1,200."),
    ("He has none.", NONE, NONE),
    ("He has none..", NONE, ".."),
    ("from 3-4", NONE, "-4"),
    ("x = -5", NONE, "-5"),
    ("", NONE, NONE),
    ("#### ", NONE, NONE),
    ("1.5e3", NONE, "3"),
]

# extracted, answer of the question, whether that is right
COMPARED = [
    ("7", "... #### 7", True),
    ("7", "#### 8", False),
    ("1,234", "#### 1234", True),
    ("$1,234.", "#### 1,234", True),
    ("7.", "#### 7", True),
    ("7.0", "#### 7", False),
    ("-7", "#### 7", False),
    ("007", "#### 7", False),
    (NONE, "#### 7", False),
    ("7", "#### 5 is wrong\n#### 7", True),
]

GOOD_LINE = '{"question": "2 + 2?", "answer": "4\\n#### 4"}\n'
# a line of a file, words of the error
BAD_LINES = [
    ("nonsense", "not JSON in UTF-8"),
    ("\udcff", "not JSON in UTF-8"),
    ("[]", 'expected {"question": "...", "answer": "... #### 42"}'),
    ('{"question": "x"}', "expected"),
    ('{"question": "", "answer": "#### 1"}', "expected"),
    ('{"question": "x", "answer": 1}', "expected"),
    ('{"question": "x", "answer": "1"}', "the answer does not end with '#### ' and a number"),
]

# expected, got, higher is better, rtol, at_least, passed
VERDICTS = [
    (0.80, 0.80, True, 0.05, False, True),
    (0.80, 0.84, True, 0.05, False, True),
    (0.80, 0.76, True, 0.05, False, True),
    (0.80, 0.8401, True, 0.05, False, False),
    (0.80, 0.7599, True, 0.05, False, False),
    (0.80, 0.99, True, 0.05, True, True),
    (0.80, 0.76, True, 0.05, True, True),
    (0.80, 0.75, True, 0.05, True, False),
    (0.80, 0.79, True, 0.0, True, False),
    (0.80, 0.80, True, 0.0, False, True),
    (12.0, 14.0, False, 0.05, True, False),
    (12.0, 10.0, False, 0.05, True, True),
    (0.0, 0.0, True, 0.05, False, True),
    (0.0, 0.01, True, 0.05, False, False),
    (-2.0, -2.1, True, 0.05, False, True),
    (-2.0, -2.2, True, 0.05, False, False),
]

TUTORIAL = """model_name: "microsoft/Phi-4-mini-instruct"
model_type: "vllm"
hardware: "Atlas A2 Series"

serve:
  tensor_parallel_size: 1
  dtype: auto
  max_model_len: 4096
  gpu_memory_utilization: 0.8
  trust_remote_code: false
  enforce_eager: true

tasks:
- name: "gsm8k"
  metrics:
  - name: "exact_match,strict-match"
    value: 0.81
  - name: "exact_match,flexible-extract"
    value: 0.812

num_fewshot: 5
apply_chat_template: true
fewshot_as_multiturn: true
batch_size: "auto"
"""
TASKS = "tasks:\n- name: t\n  metrics:\n  - {name: m, value: 1}\n"
GATE_HEAD = "model_name: x\n" + TASKS
# a gate, words of the error (behind its file's name)
BAD_GATES = [
    ("[]", "must be a mapping with model_name and tasks"),
    ("", "must be a mapping with model_name and tasks"),
    ("a: b: c", "text with a colon needs quotes"),
    (TASKS, "model_name: is missing"),
    ("model_name: x", "tasks: is missing"),
    ("model_name: 5\n" + TASKS, "model_name: must be a text, not 5"),
    (GATE_HEAD + "modelname: x", "modelname: no such key (did you mean 'model_name'?)"),
    (GATE_HEAD + "zzz: 1", "zzz: no such key (there are apply_chat_template, batch_size,"),
    (GATE_HEAD + "model_type: vllm-asr", "model_type: must be vllm (a model that reads and writes text)"),
    (GATE_HEAD + "num_fewshot: -1", "num_fewshot: must be a whole number from 0 on, not -1"),
    (GATE_HEAD + "num_fewshot: true", "num_fewshot: must be a whole number from 0 on, not True"),
    (GATE_HEAD + "apply_chat_template: 1", "apply_chat_template: must be true or false, not 1"),
    (GATE_HEAD + "limit: 0", "limit: must be a number of questions, or a share"),
    (GATE_HEAD + "limit: 1.5", "limit: must be"),
    (GATE_HEAD + "batch_size: 0", "batch_size: must be 'auto' or a whole number from 1 on, not 0"),
    (GATE_HEAD + "serve: 5", "serve: must be a mapping, not 5"),
    (GATE_HEAD + "serve: {max_model_length: 5}", "serve.max_model_length: no such key (did you mean 'max_model_len'?)"),
    (GATE_HEAD + "serve: {dtype: [a]}", "serve.dtype: must be a text, a number, true or false"),
    ("model_name: x\ntasks: []", "tasks: must be a list of at least one"),
    ("model_name: x\ntasks: [gsm8k]", "tasks[0]: must be a mapping with name, metrics"),
    ("model_name: x\ntasks: [{name: t}]", "tasks[0].metrics: is missing"),
    ("model_name: x\ntasks: [{name: t, metrics: []}]", "tasks[0].metrics: must be a list of at least one"),
    ("model_name: x\ntasks: [{name: t, metrics: [{name: m}]}]", "tasks[0].metrics[0].value: is missing"),
    ("model_name: x\ntasks: [{name: t, metrics: [{name: m, value: '1'}]}]",
     "tasks[0].metrics[0].value: must be a number, not '1'"),
    ("model_name: x\ntasks: [{name: t, metrics: [{name: m, value: 1}, {name: m, value: 2}]}]",
     "tasks[0].metrics[1]: 'm' stands here for the second time"),
    ("model_name: x\ntasks: [{name: t, metrics: [{name: m, value: 1}], shots: x}]",
     "tasks[0].shots: is for a task with"),
    ("model_name: x\ntasks: [{name: t, metrics: [{name: m, value: 1}]}, {name: t, metrics: [{name: m, value: 1}]}]",
     "tasks[1].name: 't' stands here for the second time"),
    ("model_name: x\ntasks: [{name: t, metrics: [{name: m, value: 1}], dataset: d}]", "tasks[0].dataset: no such key"),
]
BAD_GEN_KWARGS = [
    ({"temperature": 0.5}, "temperature: must be 0: answers are greedy"),
    ({"do_sample": True}, "do_sample: must be false"),
    ({"max_gen_toks": 0}, "max_gen_toks: must be a whole number from 1 on"),
    ({"until": []}, "until: must be a text or a list of texts"),
    ({"until": [""]}, "until: must be"),
    ({"top_p": 1}, "top_p: no such key"),
]


def question(n):
    return gsm8k.Question(f"What is {n} plus {n}?", f"{2 * n}\n#### {2 * n}")


def command(*arguments):
    """(exit code, standard output, standard error) of the command."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main([str(a) for a in arguments])
        except SystemExit as end:  # argparse
            code = end.code
    return code, out.getvalue(), err.getvalue()


class InFolder(unittest.TestCase):
    def setUp(self):
        self.folder = Path(self.enterContext_(tempfile.TemporaryDirectory()))

    def enterContext_(self, manager):  # TestCase has it since Python 3.11
        value = manager.__enter__()
        self.addCleanup(manager.__exit__, None, None, None)
        return value

    def write(self, name, text):
        path = self.folder / name
        path.write_text(text, encoding="utf-8", errors="surrogateescape")
        return str(path)


class Questions(InFolder):
    def test_extraction(self):
        for response, strict, flexible in EXTRACTED:
            with self.subTest(response):
                self.assertEqual(gsm8k.extract_strict(response), strict)
                self.assertEqual(gsm8k.extract_flexible(response), flexible)

    def test_comparison(self):
        for extracted, answer, right in COMPARED:
            with self.subTest((extracted, answer)):
                self.assertEqual(gsm8k.is_right(extracted, gsm8k.Question("?", answer)), right)
        self.assertEqual(gsm8k.normalize("NONE"), "none")

    def test_files(self):
        path = self.write("q.jsonl", GOOD_LINE + "\n" + '{"question": "é?", "answer": "#### 1", "more": 1}')
        self.assertEqual(gsm8k.read_questions(path),
                         [gsm8k.Question("2 + 2?", "4\n#### 4"), gsm8k.Question("é?", "#### 1")])
        self.assertEqual(len(gsm8k.read_questions(QUESTIONS)), 100)

    def test_bad_files(self):
        for line, words in BAD_LINES:
            path = self.write("q.jsonl", GOOD_LINE + line + "\n")
            with self.subTest(line), self.assertRaisesRegex(gsm8k.DataError, f"^{path}:2: .*" + re.escape(words)):
                gsm8k.read_questions(path)
        with self.assertRaisesRegex(gsm8k.DataError, "no questions"):
            gsm8k.read_questions(self.write("empty.jsonl", "\n\n"))
        with self.assertRaises(FileNotFoundError):
            gsm8k.read_questions(self.folder / "nowhere")


class Prompts(unittest.TestCase):
    def test_shots_are_the_same_each_time_and_never_the_question(self):
        asked = [question(n) for n in range(30)]
        chosen = gsm8k.choose_shots(asked, asked, 5, own=True)
        self.assertEqual(chosen, gsm8k.choose_shots(asked, asked, 5, own=True))
        self.assertEqual(chosen[:7], gsm8k.choose_shots(asked[:7], asked, 5, own=True))  # whatever the limit
        self.assertEqual(len({tuple(shots) for shots in chosen}), 30)
        for one, shots in zip(asked, chosen):
            self.assertEqual(len(set(shots) - {one}), 5)
        pool = [question(n) for n in range(100, 105)]
        for shots in gsm8k.choose_shots(asked, pool, 5, own=False):
            self.assertEqual(set(shots), set(pool))
        self.assertEqual(gsm8k.choose_shots(asked, asked, 0, own=True), [[]] * 30)

    def test_repeated_questions(self):
        asked = [question(1)] * 3 + [question(2), question(3)]
        for one, shots in zip(asked, gsm8k.choose_shots(asked, asked, 2, own=True)):
            self.assertEqual(len(shots), 2)
            self.assertNotIn(one, shots)

    def test_too_few(self):
        asked = [question(1), question(2)]
        with self.assertRaisesRegex(gsm8k.DataError, "2 examples for each question are wanted, and there are 1"):
            gsm8k.choose_shots(asked, asked, 2, own=True)
        with self.assertRaisesRegex(gsm8k.DataError, "3 examples .* there are 2"):
            gsm8k.choose_shots(asked, asked, 3, own=False)
        with self.assertRaisesRegex(gsm8k.DataError, "only 1 differ from 'What is 1 plus 1"):
            gsm8k.choose_shots([question(1)], [question(1)] * 4 + [question(2)], 2, own=True)

    def test_forms(self):
        def form(**options):
            return gsm8k.make_prompt(question(3), [question(1), question(2)], gsm8k.Settings(**options))
        text = ("Question: What is 1 plus 1?\nAnswer: 2\n#### 2\n\nQuestion: What is 2 plus 2?\nAnswer: 4\n#### 4\n\n"
                "Question: What is 3 plus 3?\nAnswer:")
        self.assertEqual(form(chat=False), text)
        self.assertEqual(form(chat=False, system_prompt="Be brief. "), "Be brief. " + text)
        self.assertEqual(form(multiturn=False), [{"role": "user", "content": text}])
        self.assertEqual(form(system_prompt="Be brief."), [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Question: What is 1 plus 1?\nAnswer:"},
            {"role": "assistant", "content": "2\n#### 2"},
            {"role": "user", "content": "Question: What is 2 plus 2?\nAnswer:"},
            {"role": "assistant", "content": "4\n#### 4"},
            {"role": "user", "content": "Question: What is 3 plus 3?\nAnswer:"}])


class Verdicts(unittest.TestCase):
    def test_verdicts(self):
        for expected, got, higher, rtol, at_least, passed in VERDICTS:
            with self.subTest((expected, got, higher, rtol, at_least)):
                row = judge(Score("t", "m", got, None, 9, higher), expected, rtol, at_least)
                self.assertIs(row.passed, passed)
        self.assertIsNone(judge(Score("t", "m", 0.5, None, 9), None).passed)
        self.assertAlmostEqual(judge(Score("t", "m", 0.6, None, 9), 0.8).difference, -0.25)

    def test_means(self):
        score = mean_score("t", "m", [True, True, True, False])
        self.assertEqual((score.value, score.n), (0.75, 4))
        self.assertAlmostEqual(score.stderr, 0.25)  # deviation 0.5 (of n - 1), over the root of 4
        self.assertIsNone(mean_score("t", "m", [True]).stderr)

    def test_table(self):
        rows = [judge(Score("gsm8k", "em", 0.7, 0.01, 100), 0.8), judge(Score("t", "acc", 1.0, None, 5), None)]
        self.assertEqual(table(rows).splitlines(), [
            "task   metric    n  expected     got  stderr  difference  verdict",
            "gsm8k  em      100    0.8000  0.7000  0.0100    -12.50 %  MISSED",
            "t      acc       5         -  1.0000       -           -  -"])


class Gates(InFolder):
    def test_the_tutorials(self):
        config = read_config(self.write("gate.yaml", TUTORIAL))
        self.assertEqual(config, Config(
            "microsoft/Phi-4-mini-instruct", [Task("gsm8k", {STRICT: 0.81, FLEXIBLE: 0.812})],
            {"dtype": "auto", "max_model_len": 4096}, 5, True, True, None, "auto",
            ignored=["hardware", "serve.tensor_parallel_size", "serve.gpu_memory_utilization",
                     "serve.trust_remote_code", "serve.enforce_eager"]))

    def test_files_are_beside_the_gate(self):
        config = read_config(GATE)
        self.assertEqual(config.tasks[0].file, str(QUESTIONS))

    def test_bad_gates(self):
        for text, words in BAD_GATES:
            path = self.write("gate.yaml", text)
            with self.subTest(text), self.assertRaisesRegex(ValueError, f"^{path}:.* ?" + re.escape(words)):
                read_config(path)

    def test_bad_gen_kwargs(self):
        self.assertEqual(greedy_settings({"max_gen_toks": 9, "until": "x", "temperature": 0.0}), (9, ("x",)))
        for found, words in BAD_GEN_KWARGS:
            with self.subTest(found), self.assertRaisesRegex(ConfigError, "gen_kwargs: " + re.escape(words)):
                greedy_settings(found)


class CommandLine(InFolder):
    def refused(self, words, *arguments):
        code, out, err = command(*arguments)
        self.assertEqual((code, out), (2, ""))
        self.assertIn(words, err)

    def test_wrong_lines(self):
        gate = self.write("gate.yaml", TUTORIAL)
        questions = self.write("q.jsonl", GOOD_LINE)
        for arguments, words in (
                ([], "a model is missing: GATE.yaml, or --model FOLDER"),
                (["--model", CHAT], "a task is missing"),
                (["--model", CHAT, "--gsm8k", QUESTIONS, "--task", "gsm8k"], "a task is named twice"),
                (["--model", CHAT, "--gsm8k", QUESTIONS, "--task", "t", "--expect", "m=1"], "--expect is for one task"),
                (["--model", CHAT, "--gsm8k", QUESTIONS, "--expect", "m"], "--expect m: expected METRIC=VALUE"),
                (["--model", CHAT, "--gsm8k", QUESTIONS, "--expect", "=1"], "--expect =1: expected METRIC=VALUE"),
                (["--model", CHAT, "--gsm8k", QUESTIONS, "--set", "dtype"], "--set dtype: expected NAME=VALUE"),
                (["--model", CHAT, "--gsm8k", QUESTIONS, "--set", "dtyp=x"], "no such name (did you mean 'dtype'?)"),
                (["--model", CHAT, "--shots", QUESTIONS, "--task", "t"], "--shots is for --gsm8k"),
                ([gate, "--task", "t"], "--task and --expect are for a run without GATE.yaml"),
                ([GATE, "--gsm8k", QUESTIONS], "has no task 'gsm8k', but word_problems"),
                ([self.folder / "nowhere.yaml"], "No such file or directory"),
                ([gate, "--gsm8k", self.folder / "nowhere"], "No such file or directory"),
                ([gate, "--gsm8k", questions], "5 examples for each question are wanted, and there are 0"),
                ([gate, "--rtol", "2"], "invalid share (0 to 1) value: '2'"),
                ([gate, "--limit", "1.5"], "invalid limit (a number of questions, or a share below 1) value: '1.5'"),
                ([gate, "--limit", "0"], "invalid limit"),
                ([gate, "--num-fewshot", "-1"], "invalid count (a whole number from 0 on) value: '-1'"),
                ([gate, "--concurrency", "0"], "invalid count (a whole number from 1 on) value: '0'"),
                ([gate, "--no-such-flag"], "unrecognized arguments: --no-such-flag")):
            with self.subTest(arguments):
                self.refused(words, *arguments)

    def test_what_cannot_run(self):
        self.refused("dtype must be one of", GATE, "--model", CHAT, "--set", "dtype=int3", "--quiet")
        url = f"http://127.0.0.1:{free_port()}"
        self.refused("Connection refused", GATE, "--url", url)
        self.refused("expected http://host:port", GATE, "--url", "host")
        self.refused("nowhere: not a folder with a checkpoint", GATE, "--model", self.folder / "nowhere", "--quiet")
        code, _, err = command(CHAT / "gate.yaml", "--model", serving.CODE, "--quiet")
        self.assertEqual(code, 2)
        self.assertIn("no chat template", err)

    def test_a_metric_that_is_none(self):
        self.refused(f"task 'gsm8k' has no metric 'acc'; it has '{STRICT}', '{FLEXIBLE}'", "--model", CHAT, "--gsm8k",
                     QUESTIONS, "--limit", 1, "--quiet", "--expect", "acc=1")

    def test_without_lm_eval(self):
        """Its tasks name it, and files do not need it."""
        self.write("lm_eval.py", "raise ImportError('not today')")
        gate = self.write("gate.yaml", TUTORIAL)
        env = {**os.environ, "PYTHONPATH": f"{self.folder}{os.pathsep}{os.environ['PYTHONPATH']}"}
        for arguments, code, words in (
                (["phidelity.eval", gate], 2, "run by lm-eval, which cannot be imported (not today): "
                                              'pip install "lm_eval[api]", or give a file (--gsm8k FILE)'),
                (["phidelity.lm_eval", "--help"], 1, "lm-eval cannot be imported (not today)"),
                (["phidelity.eval", GATE, "--model", CHAT, "--limit", "1", "--rtol", "1"], 0, "")):
            result = subprocess.run([sys.executable, "-m", *map(str, arguments)], env=env, capture_output=True,
                                    text=True)
            with self.subTest(arguments):
                self.assertEqual(result.returncode, code, result.stderr)
                self.assertIn(words, result.stderr)


class Runs(InFolder):
    """Whole runs over the bundled model, in float32."""

    @classmethod
    def setUpClass(cls):
        cls.llm = LLM(str(CHAT), dtype="float32")
        cls.server = serving.Server(CHAT, "--dtype", "float32")
        cls.url = f"http://127.0.0.1:{cls.server.port}"

    @classmethod
    def tearDownClass(cls):
        cls.server.close()
        cls.llm.close()

    def report(self, **options):
        options = {"num_fewshot": 3, "limit": 20, "gen_kwargs": {"max_gen_toks": 48}, **options}
        config = Config(str(CHAT), [Task("t", {}, str(QUESTIONS))], **options)
        here = run(config, llm=self.llm, progress=False)
        there = run(config, url=self.url, concurrency=8, progress=False)
        self.assertEqual(there.rows, here.rows)
        self.assertEqual(there.samples, here.samples)
        self.assertTrue(here.passed)
        return {row.metric: row.value for row in here.rows}, here.samples["t"]

    def test_a_server_scores_as_the_engine_here(self):
        scores, samples = self.report()
        self.assertGreaterEqual(scores[FLEXIBLE], 0.5)
        self.assertEqual([s["question"] for s in samples], [q.question for q in gsm8k.read_questions(QUESTIONS)[:20]])
        again, _ = self.report(fewshot_as_multiturn=False)
        self.assertNotEqual(again, scores)
        self.report(apply_chat_template=False)

    def test_a_system_prompt_is_obeyed(self):
        scores, samples = self.report(num_fewshot=0, system_prompt="Answer with the number only.")
        self.assertGreaterEqual(scores[FLEXIBLE], 0.6)
        self.assertFalse([s for s in samples if not re.fullmatch(r"[0-9]+( \w+)?", s["response"])])

    def test_answers_end_where_gen_kwargs_say(self):
        _, samples = self.report(gen_kwargs={"until": [" has"]}, num_fewshot=0)
        self.assertFalse(any(" has" in s["response"] for s in samples))

    def test_shares(self):
        _, samples = self.report(limit=0.021, num_fewshot=0)
        self.assertEqual(len(samples), 3)  # of 100, rounded up

    def test_the_models_own_gate(self):
        found = self.folder / "out.json"
        code, out, err = command(GATE, "--model", CHAT, "--json", found, "--quiet")
        self.assertEqual((code, err), (0, ""))
        self.assertEqual([line.split()[-1] for line in out.splitlines()], ["verdict", "pass", "pass"])
        report = json.loads(found.read_text())
        self.assertEqual((report["passed"], report["url"], len(report["samples"]["word_problems"])), (True, None, 100))
        self.assertEqual(report["rows"][0]["value"], 0.85)  # transformers' score, exactly

    def test_misses(self):
        asked = ["--model", CHAT, "--gsm8k", QUESTIONS, "--url", self.url, "--limit", 10, "--num-fewshot", 0,
                 "--system-prompt", "Answer with the number only.", "--quiet", "--max-tokens", 8]
        code, out, _ = command(*asked, "--expect", f"{FLEXIBLE}=0.5")
        self.assertEqual(code, 1)
        self.assertRegex(out, r"0\.5000 .* MISSED\n$")
        self.assertEqual(command(*asked, "--expect", f"{FLEXIBLE}=0.5", "--at-least")[0], 0)
        self.assertEqual(command(*asked, "--expect", f"{FLEXIBLE}=0.5", "--rtol", 1)[0], 0)
        self.assertEqual(command(*asked)[0], 0)

    def test_json_to_standard_output(self):
        code, out, err = command("--model", CHAT, "--gsm8k", QUESTIONS, "--url", self.url + "/v1", "--limit", 1,
                                 "--num-fewshot", 0, "--quiet", "--json", "-")
        self.assertEqual(code, 0)
        self.assertEqual(json.loads(out)["rows"][0]["task"], "gsm8k")
        self.assertIn("verdict", err)

    def test_other_shots(self):
        shots = self.write("shots.jsonl", "".join(QUESTIONS.read_text().splitlines(keepends=True)[:3]))
        asked = self.write("asked.jsonl", "".join(QUESTIONS.read_text().splitlines(keepends=True)[3:5]))
        seen = []
        with mock.patch.object(gsm8k, "make_prompt", side_effect=lambda q, s, settings: seen.append(s) or "x"):
            command("--model", CHAT, "--gsm8k", asked, "--shots", shots, "--num-fewshot", 3, "--url", self.url,
                    "--quiet", "--max-tokens", 1)
        self.assertEqual([set(s) for s in seen], [set(gsm8k.read_questions(shots))] * 2)

    def test_a_server_that_refuses(self):
        code, _, err = command("--model", CHAT, "--gsm8k", QUESTIONS, "--url", self.url, "--quiet", "--num-fewshot", 60)
        self.assertEqual(code, 2)
        self.assertRegex(err, "/v1/chat/completions: status 400: .*maximum context length is 1024")


if __name__ == "__main__":
    tap.main()
