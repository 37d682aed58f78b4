"""lm-eval's tasks, run by lm-eval against a server. The only module here that needs it (lm-eval 0.4.9 or later)."""
from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ..http_json import ask
from .config import ConfigError, near
from .scores import Score

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from .config import Config

TIMEOUT_S = 3600  # of one answer


def _import(allow_downloads: bool) -> Any:
    """lm_eval, which by default finds data sets on this machine only. The environment counts at import."""
    if not allow_downloads:
        os.environ["HF_HUB_OFFLINE"] = os.environ["HF_DATASETS_OFFLINE"] = "1"
    os.environ.setdefault("no_proxy", "localhost,127.0.0.1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    try:
        import lm_eval
        import lm_eval.models  # noqa: F401 (the registry is empty without it)
        import lm_eval.tasks
    except ImportError as error:
        raise ConfigError(f"tasks without a file of questions are run by lm-eval, which cannot be imported ({error}): "
                          "pip install \"lm_eval[api]\", or give a file (--gsm8k FILE)") from None
    return lm_eval


def prepare(names: Sequence[str], include_path: str | None, allow_downloads: bool) -> Any:
    """lm-eval's TaskManager that knows all the tasks. Raises ConfigError for an unknown one, and without lm-eval."""
    tasks = _import(allow_downloads).tasks
    if include_path is not None:  # its own tasks are thousands of files, and seldom wanted then
        manager = tasks.TaskManager(include_path=include_path, include_defaults=False)
        if set(names) <= set(manager.all_tasks):
            return manager
    manager = tasks.TaskManager(include_path=include_path)
    unknown = [name for name in names if name not in manager.all_tasks]
    if unknown:
        import difflib
        close = ", ".join(difflib.get_close_matches(unknown[0], manager.all_tasks, 5))
        raise ConfigError(f"lm-eval knows no task '{unknown[0]}'" + (f"; near it: {close}" if close else "") +
                          "; --include-path names a folder with more")
    return manager


def _model(config: Config, folder: str, url: str, api_key: str | None, concurrency: int) -> tuple[str, dict[str, Any]]:
    """lm-eval's name for the way to ask, and its arguments.

    With the checkpoint at hand it makes the tokens and sends those, so that log probabilities of given
    answers work too; without it, conversations.
    """
    served = ask(url, "/v1/models", api_key=api_key)["data"][0]
    base = url.rstrip("/").removesuffix("/v1")
    arguments = {"model": served["id"], "num_concurrent": concurrency, "timeout": TIMEOUT_S, "max_retries": 1,
                 "batch_size": 1 if config.batch_size == "auto" else config.batch_size}
    if api_key:
        arguments["header"] = {"Authorization": f"Bearer {api_key}"}
    if "max_model_len" in served:  # lm-eval cuts prompts that are longer
        arguments["max_length"] = served["max_model_len"]
    if os.path.isdir(folder):
        return "local-completions", {**arguments, "base_url": base + "/v1/completions", "tokenizer": folder,
                                     "tokenizer_backend": "huggingface"}
    if not config.apply_chat_template:
        raise ConfigError(f"'{config.model}' is no folder here: without its tokenizer only chats can be sent "
                          "(name the folder with --model, or set apply_chat_template)")
    return "local-chat-completions", {**arguments, "base_url": base + "/v1/chat/completions"}


def _score(found: dict[str, Any], task: str, metric: str) -> Score:
    """One metric of lm-eval's results; its key is "name,filter", and its standard error's "name_stderr,filter"."""
    results = found["results"][task]
    name = metric.partition(",")[0]
    stderr = results.get(metric.replace(",", "_stderr,", 1))
    better = (found.get("higher_is_better") or {}).get(task, {}).get(name)
    n = (found.get("n-samples") or {}).get(task, {}).get("effective", 0)
    return Score(task, metric, float(results[metric]), stderr if isinstance(stderr, float) else None, int(n),
                 better is not False)


def _is_metric(key: str, value: Any) -> bool:
    return "," in key and "_stderr," not in key and isinstance(value, (int, float))


def run(config: Config, names: Sequence[str], manager: Any, folder: str, url: str, api_key: str | None,
        concurrency: int) -> dict[str, list[Score]]:
    """All scores of the tasks. manager: prepare()'s. folder: the checkpoint, which need not exist. Raises ConfigError
    for a data set that is not on this machine."""
    import lm_eval
    kind, arguments = _model(config, folder, url, api_key, concurrency)
    options: dict[str, Any] = {"num_fewshot": config.num_fewshot, "limit": config.limit,
                               "gen_kwargs": config.gen_kwargs or None, "system_instruction": config.system_prompt}
    try:
        found = lm_eval.simple_evaluate(
            model=kind, model_args=arguments, tasks=list(names), task_manager=manager,
            apply_chat_template=config.apply_chat_template,
            fewshot_as_multiturn=config.fewshot_as_multiturn and config.apply_chat_template,
            batch_size=arguments.pop("batch_size"), log_samples=False, **options)
    except (ConnectionError, OSError) as error:
        if type(error).__module__.startswith(("datasets", "huggingface_hub")) or "offline" in str(error).lower():
            raise ConfigError(f"a data set of {', '.join(names)} is not on this machine "
                              f"(--allow-downloads fetches it): {error}") from error
        raise
    return {name: [_score(found, name, key) for key, value in found["results"][name].items() if _is_metric(key, value)]
            for name in names}
