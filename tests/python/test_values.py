#!/usr/bin/env python3
"""The package without a model: the layout of structs, the values, their defaults and checks, import.

PYTHONPATH names the built package, PHI_LAYOUT a program that prints the compiler's layout. Prints TAP.
"""
import copy
import dataclasses
import inspect
import os
import pickle
import subprocess
import sys
import unittest
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import tap

from phidelity import LLM, CompletionOutput, Logprob, RequestOutput, SamplingParams, ValidationError
from phidelity._cffi import ffi
from phidelity._library import lib
from phidelity.logprobs import Logprob as SameLogprob
from phidelity.metrics import Counter
from phidelity.sampling_params import RequestOutputKind

# vLLM's, in its order.
DEFAULTS = {
    "n": 1, "presence_penalty": 0.0, "frequency_penalty": 0.0, "repetition_penalty": 1.0, "temperature": 1.0,
    "top_p": 1.0, "top_k": 0, "min_p": 0.0, "seed": None, "stop": [], "stop_token_ids": [], "ignore_eos": False,
    "max_tokens": 16, "min_tokens": 0, "logprobs": None, "prompt_logprobs": None, "detokenize": True,
    "skip_special_tokens": True, "spaces_between_special_tokens": True, "include_stop_str_in_output": False,
    "output_kind": RequestOutputKind.CUMULATIVE, "logit_bias": None, "allowed_token_ids": None, "extra_args": None,
    "bad_words": [], "skip_reading_prefix_cache": False, "skip_clone": False, "structured_outputs": None,
    "logprob_token_ids": None, "flat_logprobs": False, "thinking_token_budget": None, "repetition_detection": None,
    "prompt_logprob_token_ids": None, "prompt_logprob_start": None, "trace_decode_token_ids": None,
    "stream_interval": None,
}
SHOWN = ("SamplingParams(n=1, presence_penalty=0.0, frequency_penalty=0.0, repetition_penalty=1.0, temperature=0.0, "
         "top_p=1.0, top_k=0, min_p=0.0, seed=None, stop=['a'], stop_token_ids=[], bad_words=[], "
         "thinking_token_budget=None, include_stop_str_in_output=False, ignore_eos=False, max_tokens=16, "
         "min_tokens=0, logprobs=None, prompt_logprobs=None, skip_special_tokens=True, "
         "spaces_between_special_tokens=True, structured_outputs=None, extra_args=None)")

# Arguments, and the error that they must give.
BAD = [
    ({"n": 0}, ValueError), ({"n": 16385, "temperature": 1}, ValueError), ({"n": 2, "temperature": 0}, ValueError),
    ({"n": 1.5}, ValueError), ({"n": None}, ValueError), ({"n": True}, TypeError), ({"output_kind": 3}, ValueError),
    ({"presence_penalty": 2.1}, ValueError), ({"frequency_penalty": -2.1}, ValueError),
    ({"presence_penalty": float("nan")}, ValueError), ({"repetition_penalty": 0}, ValueError),
    ({"repetition_penalty": float("inf")}, ValueError), ({"temperature": -0.1}, ValueError),
    ({"temperature": float("nan")}, ValueError), ({"temperature": float("inf")}, ValueError),
    ({"temperature": "0.5"}, TypeError), ({"temperature": None}, TypeError), ({"top_p": 0}, ValueError),
    ({"top_p": 1.1}, ValueError), ({"top_k": -2}, ValueError), ({"top_k": 1.5}, TypeError),
    ({"top_k": "5"}, TypeError), ({"min_p": -0.1}, ValueError), ({"min_p": 1.1}, ValueError),
    ({"seed": 2**63}, ValueError), ({"seed": "1"}, TypeError), ({"stop": ""}, ValueError),
    ({"stop": ["a", ""]}, ValueError), ({"stop": [1]}, ValueError), ({"stop": 5}, TypeError),
    ({"stop": "a", "detokenize": False}, ValueError), ({"stop_token_ids": ["a"]}, ValueError),
    ({"stop_token_ids": 7}, TypeError), ({"max_tokens": 0}, ValueError), ({"max_tokens": "8"}, TypeError),
    ({"min_tokens": -1}, ValueError), ({"min_tokens": 9, "max_tokens": 8}, ValueError),
    ({"logprobs": -2}, ValueError), ({"prompt_logprobs": -2}, ValueError), ({"logprobs": 1.5}, TypeError),
    ({"logit_bias": {"x": 1}}, ValueError), ({"logit_bias": [1]}, TypeError),
    ({"allowed_token_ids": []}, ValueError), ({"bad_words": [""]}, ValueError),
    ({"structured_outputs": {"choice": ["a"]}}, ValueError), ({"flat_logprobs": True}, ValueError),
    ({"best_of": 2}, TypeError), ({"use_beam_search": True}, TypeError),
]


class Layout(unittest.TestCase):
    def test_structs_and_constants_are_the_compilers(self):
        lines = subprocess.run([os.environ["PHI_LAYOUT"]], capture_output=True, text=True, check=True).stdout.split("\n")
        compared = 0
        for name, number in (line.split() for line in lines if line):
            if name.startswith("PHI_"):
                found = getattr(lib, name)
            elif "." in name:
                struct, field = name.split(".")
                found = dict(ffi.typeof(f"struct {struct}").fields)[field].offset
            else:
                found = ffi.sizeof(f"struct {name}")
            self.assertEqual(found, int(number), name)
            compared += 1
        self.assertGreater(compared, 120)


class Package(unittest.TestCase):
    def test_import_is_light(self):
        """In processor time, since others may use this machine, too; and of several runs the best."""
        command = ("import time; t = time.process_time(); import phidelity; print(time.process_time() - t);"
                   "import sys; print(*sys.modules)")
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        times = []
        for _ in range(10):
            seconds, modules = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True,
                                              check=True, env=environment).stdout.splitlines()
            times.append(float(seconds))
            for heavy in ("numpy", "torch", "asyncio", "dataclasses", "typing", "tqdm"):
                self.assertNotIn(heavy, modules.split())
            if min(times) < 0.05:
                break
        self.assertLess(min(times), 0.05)

    def test_program(self):
        program = [sys.executable, "-m", "phidelity"]
        version = subprocess.run([*program, "--version"], capture_output=True, text=True)
        self.assertEqual((version.returncode, version.stdout), (0, f"phidelity {__import__('phidelity').__version__}\n"))
        self.assertEqual(subprocess.run([*program, "no-such-command"], capture_output=True).returncode, 2)

    def test_every_public_thing_says_what_it_is(self):
        import phidelity
        for name in phidelity.__all__:
            thing = getattr(phidelity, name)
            if not inspect.isclass(thing):
                continue
            self.assertTrue(thing.__doc__, name)
            for attribute, value in vars(thing).items():
                if inspect.isfunction(value) and not attribute.startswith("_"):
                    self.assertTrue(value.__doc__, f"{name}.{attribute}")
                    self.assertIn("return", value.__annotations__, f"{name}.{attribute}")

    def test_arguments_of_llm(self):
        with self.assertRaisesRegex(TypeError, r"LLM\(\) got an unexpected keyword argument 'enforce_eagr'"):
            LLM("/nowhere", enforce_eagr=True)
        for refused in ({"tensor_parallel_size": 2}, {"quantization": "awq"}, {"enable_lora": True},
                        {"dtype": "float8"}, {"load_format": "gguf"}, {"max_num_seqs": -1},
                        {"safetensors_load_strategy": "torchao"}, {"scheduling_policy": "lifo"}, {"hf_overrides": {"a": 1}}, {"kv_cache_dtype": "fp8"}):
            with self.subTest(**refused):
                self.assertRaises(ValueError, LLM, "/nowhere", **refused)
        self.assertRaises(TypeError, LLM, 5)
        self.assertRaises(TypeError, LLM, "/nowhere", max_num_seqs=1.5)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            self.assertRaises(OSError, LLM, "/nowhere", trust_remote_code=True, swap_space=4, enforce_eager=False,
                              tensor_parallel_size=1, quantization=None)
        self.assertEqual([str(w.message) for w in caught],
                         ["phidelity takes but does not need: trust_remote_code, swap_space"])


class Values(unittest.TestCase):
    def test_defaults(self):
        self.assertEqual(vars(SamplingParams()), DEFAULTS)
        self.assertEqual(SamplingParams(2, 0.5, 0.25, 1.5, 0.7).temperature, 0.7)

    def test_bad_parameters(self):
        for arguments, error in BAD:
            with self.subTest(**arguments):
                self.assertRaises(error, SamplingParams, **arguments)

    def test_bad_parameters_name_the_culprit(self):
        with self.assertRaises(ValidationError) as caught:
            SamplingParams(top_p=1.5)
        self.assertEqual((caught.exception.parameter, caught.exception.value), ("top_p", 1.5))
        self.assertEqual(str(caught.exception), "top_p must be in (0, 1], got 1.5. (parameter=top_p, value=1.5)")

    def test_what_vllm_settles(self):
        greedy = SamplingParams(temperature=0, top_p=0.5, top_k=3, min_p=0.1)
        self.assertEqual((greedy.top_p, greedy.top_k, greedy.min_p), (1.0, 0, 0.0))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            self.assertEqual(SamplingParams(temperature=0.001).temperature, 0.01)
        self.assertEqual(len(caught), 1)
        params = SamplingParams(seed=-1, stop="x", stop_token_ids=[3, 3, 4], logprobs=True, prompt_logprobs=0,
                                logit_bias={"5": 1000})
        self.assertEqual((params.seed, params.stop, params.stop_token_ids), (None, ["x"], [3, 3, 4]))
        self.assertIs(params.output_kind, RequestOutputKind.CUMULATIVE)
        self.assertEqual(params.logprobs, 1)
        self.assertEqual((params.skip_reading_prefix_cache, params.logit_bias), (True, {5: 100.0}))
        self.assertEqual(SamplingParams.from_optional(temperature=None, n=None, max_tokens=None).max_tokens, None)

    def test_copies(self):
        params = SamplingParams(stop=["a"], logit_bias={1: 2.0})
        for other in (params.clone(), copy.deepcopy(params), pickle.loads(pickle.dumps(params))):
            self.assertEqual(other, params)
            other.stop.append("b")
            self.assertNotEqual(other, params)
        self.assertEqual(repr(SamplingParams(temperature=0, stop="a")), SHOWN)

    def test_what_is_refused_later_too(self):
        params = SamplingParams()
        params.structured_outputs = {"choice": ["a"]}
        self.assertRaisesRegex(ValidationError, "structured_outputs is not supported", params.check)

    def test_outputs(self):
        self.assertIs(Logprob, SameLogprob)
        p = Logprob(-0.5, 1, "a")
        self.assertEqual(repr(p), "Logprob(logprob=-0.5, rank=1, decoded_token='a')")
        answer = CompletionOutput(0, "a", [5], -0.5, [{5: p}], None, "length")
        output = RequestOutput("0", "p", [1], None, [answer], True)
        self.assertTrue(answer.finished() and output.finished)
        self.assertIsNone(output.encoder_prompt)
        self.assertEqual(pickle.loads(pickle.dumps(output)), output)
        self.assertNotEqual(Logprob(-0.5, 2, "a"), p)
        self.assertEqual(repr(output), (
            "RequestOutput(request_id=0, prompt='p', prompt_token_ids=[1], encoder_prompt=None, "
            "encoder_prompt_token_ids=None, prompt_logprobs=None, outputs=[CompletionOutput(index=0, text='a', "
            "token_ids=[5], routed_experts=None, cumulative_logprob=-0.5, "
            "logprobs=[{5: Logprob(logprob=-0.5, rank=1, decoded_token='a')}], finish_reason=length, "
            "stop_reason=None)], finished=True, metrics=None, lora_request=None, num_cached_tokens=None)"))

    def test_outputs_are_as_dataclasses(self):
        answer = CompletionOutput(0, "a", [5], -0.5, [{5: Logprob(-0.5, 1, "a")}])
        told = dataclasses.asdict(answer)
        self.assertEqual(told, {**vars(answer), "logprobs": [{5: {"logprob": -0.5, "rank": 1, "decoded_token": "a"}}]})
        self.assertEqual(dataclasses.replace(answer, text="b").text, "b")
        self.assertEqual(list(dataclasses.asdict(Counter("n", {}, 3))), ["name", "labels", "value"])
        answer.note = "attributes of one's own"
        self.assertEqual(copy.deepcopy(answer).note, answer.note)


if __name__ == "__main__":
    tap.main()
