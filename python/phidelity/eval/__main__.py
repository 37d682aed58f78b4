"""python -m phidelity.eval: does a model score on tasks what it scored elsewhere?

    python -m phidelity.eval GATE.yaml --model FOLDER --gsm8k test.jsonl
    python -m phidelity.eval --model FOLDER --gsm8k test.jsonl --expect exact_match,strict-match=0.81

Exit code 0: every score is as expected (or nothing was expected); 1: one missed; 2: it could not be told, as the
command line, a file, the model or the server is wrong; 130: interrupted.
"""
from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from ..plain_yaml import YamlError, parse_yaml
from .config import SERVE, Config, ConfigError, Task, near, read_config
from .runner import CONCURRENCY, run
from .scores import RTOL, table

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from .scores import Report

GSM8K = "gsm8k"


def _share(text: str) -> float:
    value = float(text)
    if not 0 <= value <= 1:
        raise ValueError
    return value


def _limit(text: str) -> int | float:
    value = float(text)
    if not 0 < value < 1 and not (value >= 1 and value == int(value)):
        raise ValueError
    return int(value) if value >= 1 else value


def _count(text: str) -> int:
    value = int(text)
    if value < 0:
        raise ValueError
    return value


def _some(text: str) -> int:
    value = int(text)
    if value < 1:
        raise ValueError
    return value


# What argparse says about a wrong value: "invalid <name> value".
_share.__name__, _limit.__name__ = "share (0 to 1)", "limit (a number of questions, or a share below 1)"
_count.__name__, _some.__name__ = "count (a whole number from 0 on)", "count (a whole number from 1 on)"


def _parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(prog="python -m phidelity.eval", description=__doc__.split("\n\n")[0].split(": ", 1)[1],
                                epilog=__doc__.split("\n\n")[2], allow_abbrev=False)
    p.add_argument("config", metavar="GATE.yaml", nargs="?", help="a gate in vllm-ascend's format; flags go before it")
    what = p.add_argument_group("what is asked")
    what.add_argument("--model", metavar="FOLDER", help="checkpoint folder (default: the file's model_name)")
    what.add_argument("--gsm8k", metavar="FILE", help="questions of the task gsm8k, JSON lines; needs no lm-eval")
    what.add_argument("--shots", metavar="FILE", help="solved examples for --gsm8k (default: the same file)")
    what.add_argument("--task", metavar="NAME", action="append", default=[],
                      help="without GATE.yaml: a task of lm-eval's (may be given several times)")
    what.add_argument("--expect", metavar="METRIC=VALUE", action="append", default=[],
                      help="without GATE.yaml: what the one task must score")
    what.add_argument("--num-fewshot", type=_count, metavar="N", help="solved examples before each question")
    what.add_argument("--apply-chat-template", action=argparse.BooleanOptionalAction, default=None,
                      help="ask through the chat template (default: yes)")
    what.add_argument("--fewshot-as-multiturn", action=argparse.BooleanOptionalAction, default=None,
                      help="examples are turns of their own (default: yes)")
    what.add_argument("--system-prompt", metavar="TEXT", help="in front of every prompt")
    what.add_argument("--limit", type=_limit, metavar="N", help="only the first N questions of each task, or a share")
    what.add_argument("--max-tokens", type=_some, metavar="N", help="longest answer (default: the task's, else 256)")
    what.add_argument("--include-path", metavar="FOLDER", help="with more tasks for lm-eval")
    what.add_argument("--allow-downloads", action="store_true", help="lm-eval may fetch data sets")
    who = p.add_argument_group("who is asked")
    who.add_argument("--url", help="a server that runs, http://host:port (default: the engine in this process, and for "
                                   "lm-eval's tasks a server that is started for them)")
    who.add_argument("--api-key", metavar="KEY", help="for --url")
    who.add_argument("--concurrency", type=_some, metavar="N", default=CONCURRENCY,
                     help=f"requests at a time to a server (default: {CONCURRENCY})")
    who.add_argument("--set", metavar="NAME=VALUE", action="append", default=[],
                     help="over the file's 'serve', as dtype=float32; names: " + ", ".join(SERVE))
    how = p.add_argument_group("the verdict")
    how.add_argument("--rtol", type=_share, default=RTOL, metavar="R",
                     help=f"a score passes within R times the expected value (default: {RTOL})")
    how.add_argument("--at-least", action="store_true", help="a better score passes, however far")
    how.add_argument("--json", metavar="FILE", help="write report and answers; - is standard output")
    how.add_argument("--quiet", action="store_true", help="no bars")
    return p


def _serve_settings(pairs: Sequence[str]) -> dict[str, Any]:
    found = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        name = name.replace("-", "_")
        if not equals:
            raise ConfigError(f"--set {pair}: expected NAME=VALUE")
        if name not in SERVE:
            raise ConfigError(f"--set {pair}: no such name" + near(name, SERVE))
        try:
            found[name] = parse_yaml(value)
        except YamlError:
            found[name] = value
    return found


def _expected(pairs: Sequence[str]) -> dict[str, float]:
    found = {}
    for pair in pairs:
        metric, _, value = pair.rpartition("=")
        try:
            found[metric] = float(value)
        except ValueError:
            metric = ""
        if not metric:
            raise ConfigError(f"--expect {pair}: expected METRIC=VALUE, as exact_match,strict-match=0.81")
    return found


def _named_tasks(args: argparse.Namespace) -> list[Task]:
    """The tasks of a command line without a file."""
    names = ([GSM8K] if args.gsm8k else []) + args.task
    if not args.model:
        raise ConfigError("a model is missing: GATE.yaml, or --model FOLDER")
    if not names:
        raise ConfigError("a task is missing: GATE.yaml, --gsm8k FILE, or --task NAME")
    if len(set(names)) < len(names):
        raise ConfigError(f"a task is named twice: {', '.join(names)}")
    if args.expect and len(names) > 1:
        raise ConfigError("--expect is for one task; a GATE.yaml can expect things of several")
    return [Task(name, _expected(args.expect)) for name in names]


def _config(args: argparse.Namespace) -> Config:
    """The gate of a command line. Raises ConfigError, YamlError, OSError."""
    if args.config is None:
        config = Config(args.model, _named_tasks(args))
    elif args.task or args.expect:
        raise ConfigError("--task and --expect are for a run without GATE.yaml, which has both")
    else:
        config = read_config(args.config)
    tasks = config.tasks
    if args.gsm8k:
        if GSM8K not in [task.name for task in tasks]:
            raise ConfigError(f"--gsm8k: {args.config} has no task 'gsm8k', but {', '.join(t.name for t in tasks)}")
        tasks = [replace(t, file=args.gsm8k, shots=args.shots) if t.name == GSM8K else t for t in tasks]
    elif args.shots:
        raise ConfigError("--shots is for --gsm8k")
    given = {"num_fewshot": args.num_fewshot, "apply_chat_template": args.apply_chat_template, "limit": args.limit,
             "fewshot_as_multiturn": args.fewshot_as_multiturn, "system_prompt": args.system_prompt}
    gen = {**config.gen_kwargs, **({"max_gen_toks": args.max_tokens} if args.max_tokens else {})}
    return replace(config, model=args.model or config.model, tasks=tasks, gen_kwargs=gen,
                   serve={**config.serve, **_serve_settings(args.set)},
                   **{key: value for key, value in given.items() if value is not None})


def _write_json(report: Report, path: str) -> None:
    text = json.dumps(report.as_dict(), indent=1, ensure_ascii=False)
    if path == "-":
        print(text)
        return
    with open(path, "w", encoding="utf-8") as file:
        file.write(text + "\n")


def _evaluate(args: argparse.Namespace) -> Report:
    config = _config(args)
    if config.ignored:
        print(f"phidelity.eval: {args.config}: without effect here: {', '.join(config.ignored)}", file=sys.stderr)
    report = run(config, url=args.url, api_key=args.api_key, rtol=args.rtol, at_least=args.at_least,
                 concurrency=args.concurrency, include_path=args.include_path, allow_downloads=args.allow_downloads,
                 progress=not args.quiet)
    if args.json:
        _write_json(report, args.json)
    return report


def main(argv: Sequence[str] | None = None) -> int:
    """The exit code."""
    args = _parser().parse_args(argv)
    try:
        report = _evaluate(args)
    except (ValueError, OSError, RuntimeError, MemoryError) as error:
        print(f"phidelity.eval: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("phidelity.eval: interrupted", file=sys.stderr)
        return 130
    print(table(report.rows), file=sys.stderr if args.json == "-" else sys.stdout)
    return 0 if report.passed else 1


if __name__ == "__main__":
    sys.exit(main())
