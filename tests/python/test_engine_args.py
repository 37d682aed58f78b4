#!/usr/bin/env python3
"""EngineArgs from a command line, as scripts for vLLM have it.

PYTHONPATH names the built package, PHI_MODELS the bundled models. Prints TAP.
"""
import argparse
import contextlib
import inspect
import io
import sys
import unittest
import warnings
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parents[1] / "server")]
import tap
from serving import CODE

from phidelity import LLM, AsyncEngineArgs, EngineArgs
from phidelity._core import Core
from phidelity.engine_args import INERT, ONLY
from phidelity.engine_cli import FIELDS


def parser():
    p = argparse.ArgumentParser()
    p.add_argument("--prompts", nargs="*", default=["def f("])
    return EngineArgs.add_cli_args(p)


def read(*words, kind=EngineArgs):
    return vars(kind.from_cli_args(parser().parse_args([*map(str, words)])))


# What EngineArgs holds without a flag: what LLM does without an argument.
DEFAULTS = read("--model", CODE)


class Fields(unittest.TestCase):
    def test_each_argument_of_llm_has_a_flag(self):
        parameters = inspect.signature(Core).parameters
        named = {n for n, p in parameters.items() if p.kind != p.VAR_KEYWORD} - {"caller"}
        self.assertEqual(set(FIELDS), named)
        self.assertEqual({n: DEFAULTS[n] for n in named - {"model"}},
                         {n: parameters[n].default for n in named - {"model"}})
        for name in INERT | ONLY.keys():
            self.assertIn("--" + name.replace("_", "-"), parser()._option_string_actions)

    def test_values(self):
        for words, want in (
                ("--max-model-len 512 --seed 3 --threads 1", {"max_model_len": 512, "seed": 3, "threads": 1}),
                ("--max-model-len auto", {"max_model_len": "auto"}),
                ("--max-model-len 2K --kv-cache-memory-bytes 0.5G", {"max_model_len": 2048, "kv_cache_memory_bytes": 2**29}),
                ("--max-num-batched-tokens 1.5k", {"max_num_batched_tokens": 1500}),
                ("--dtype float32 --kv-cache-dtype bfloat16 -q w8a8", {"dtype": "float32", "kv_cache_dtype": "bfloat16",
                                                                      "quantization": "w8a8"}),
                ("--no-enable-prefix-caching --disable-sliding-window --no-quantize-lm-head",
                 {"enable_prefix_caching": False, "disable_sliding_window": True, "quantize_lm_head": False}),
                ("--served-model-name a b", {"served_model_name": ["a", "b"]}),
                ('--override-generation-config {"temperature":0}', {"override_generation_config": {"temperature": 0}}),
                ("--enforce-eager --swap-space 4 --no-enable-chunked-prefill -tp 2",
                 {"enforce_eager": True, "swap_space": 4, "enable_chunked_prefill": False, "tensor_parallel_size": 2}),
                ('--hf-overrides {"a":[1]} --task generate', {"hf_overrides": {"a": [1]}, "task": "generate"})):
            with self.subTest(words):
                got = read("--model", CODE, *words.split())
                self.assertEqual(got, {**DEFAULTS, **want})
                self.assertEqual(read("--model", CODE, *words.split(), kind=AsyncEngineArgs), got)

    def test_refusals(self):
        for words, complaint in (("--max-model-len x", "invalid length (a count, or auto) value: 'x'"),
                                 ("--max-num-seqs 1.0005k", "invalid count value: '1.0005k'"),
                                 ("--dtype int8", "invalid choice: 'int8'"), ("--no-such-flag", "no-such-flag"),
                                 ("--override-generation-config {", "invalid JSON value: '{'")):
            err = io.StringIO()
            with self.subTest(words), contextlib.redirect_stderr(err):
                self.assertRaises(SystemExit, read, "--model", CODE, *words.split())
                self.assertIn(complaint, err.getvalue())
        self.assertRaisesRegex(ValueError, "a model is missing: --model FOLDER", read)

    def test_help(self):
        text = parser().format_help()
        self.assertIn("--max-model-len N", text)
        self.assertNotIn("--tensor-parallel-size", text)

    def test_repr(self):
        self.assertEqual(repr(EngineArgs("m", seed=1)), "EngineArgs(model='m', seed=1)")


class Scripts(unittest.TestCase):
    """The three ways in which scripts go on."""

    def test_from_engine_args(self):
        p = parser()
        p.set_defaults(model=str(CODE), max_model_len=128)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for words in ([], ["--max-model-len", "64", "--enforce-eager"]):
                args = p.parse_args(words)
                with LLM.from_engine_args(EngineArgs.from_cli_args(args)) as llm:
                    self.assertEqual(llm.max_model_len, 64 if words else 128)
                self.assertEqual(args.prompts, ["def f("])
        self.assertEqual([str(w.message) for w in caught], ["phidelity takes but does not need: enforce_eager"])

    def test_arguments_of_the_namespace(self):
        args = parser().parse_args(["--model", str(CODE), "--dtype", "float32"])
        with LLM(model=args.model, tensor_parallel_size=args.tensor_parallel_size, dtype=args.dtype,
                 trust_remote_code=args.trust_remote_code, max_model_len=args.max_model_len) as llm:
            self.assertEqual(llm.model_config.dtype, "float32")

    def test_the_whole_namespace(self):
        args = vars(parser().parse_args(["--model", str(CODE), "-tp", "2"]))
        args.pop("prompts")
        self.assertRaisesRegex(ValueError, "tensor_parallel_size=2 is not supported", LLM, **args)
        args["tensor_parallel_size"] = 1
        LLM(**args).close()


if __name__ == "__main__":
    tap.main()
