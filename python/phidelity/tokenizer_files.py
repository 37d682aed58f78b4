"""What Python reads for itself from a checkpoint's tokenizer files: names of special tokens, the template's text."""
from __future__ import annotations

import json
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def read_config(folder: str) -> dict[str, Any]:
    """tokenizer_config.json with special_tokens_map.json under it; {} when there is neither."""
    config: dict[str, Any] = {}
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        try:
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                config.update(json.load(file))
        except FileNotFoundError:
            pass
    return config


def special_token(config: dict[str, Any], name: str) -> str | None:
    """The text of "pad_token" or another such field."""
    token = config.get(name)
    return token.get("content") if isinstance(token, dict) else token


def read_template(folder: str, config: dict[str, Any], given: str | None) -> str | None:
    """The chat template's text: the one that was given (a file or a text), else the checkpoint's."""
    if given is not None and "{" in given:
        return given
    path = given or os.path.join(folder, "chat_template.jinja")
    if given is not None or os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            return file.read()
    template = config.get("chat_template")
    if isinstance(template, list):  # of named ones
        return next((t.get("template") for t in template if t.get("name") == "default"), None)
    return template
