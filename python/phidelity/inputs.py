"""Prompts: every form that vLLM takes, made into one."""
from __future__ import annotations

from ._record import Record
from .exceptions import ValidationError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Union

    PromptType = Union[str, list[int], "TextPrompt", "TokensPrompt", dict[str, Any]]

_NOT_TEXT = ("prompt_embeds", "multi_modal_data", "mm_processor_kwargs", "multi_modal_uuids", "encoder_prompt")


class TextPrompt(dict):
    """{"prompt": str} with an optional "cache_salt": str."""


class TokensPrompt(dict):
    """{"prompt_token_ids": [int]} with optional "prompt": str (for show) and "cache_salt": str."""


class Prompt(Record):
    """A prompt whose form is known: a text, ids, or ids with a text to show."""

    def __init__(self, text: str | None, ids: list[int] | None, cache_salt: str | None = None) -> None:
        self.text = text
        self.ids = ids
        self.cache_salt = cache_salt


class TokenizedPrompt(Record):
    """A prompt as the engine takes it; text is None when ids were given."""

    def __init__(self, text: str | None, ids: list[int], cache_salt: str | None = None) -> None:
        self.text = text
        self.ids = ids
        self.cache_salt = cache_salt


def _is_id(value: object) -> bool:
    return hasattr(value, "__index__") and not isinstance(value, bool)


def _parse_ids(ids: Any) -> list[int]:
    if not isinstance(ids, (list, tuple)) or not all(map(_is_id, ids)):
        raise TypeError(f"prompt token ids must be a list of integers, got {_shown(ids)}")
    if not ids:
        raise ValidationError("The decoder prompt cannot be empty")
    return [int(i) for i in ids]


def _shown(value: object) -> str:
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) <= 60 else text[:57] + '...'}"


def refuse_media(given: dict[str, Any]) -> None:
    """Raises ValidationError when one of the keys that belong to other media has a value."""
    for key in _NOT_TEXT:
        if given.get(key):
            raise ValidationError(f"{key} is not supported: the models are text only", parameter=key)


def _parse_dict(prompt: dict[str, Any]) -> Prompt:
    refuse_media(prompt)
    text, ids, salt = (prompt.get(key) for key in ("prompt", "prompt_token_ids", "cache_salt"))
    if text is None and ids is None:
        raise TypeError(f"a dict as prompt needs the key 'prompt' or 'prompt_token_ids', got keys {list(prompt)}")
    if text is not None and not isinstance(text, str):
        raise TypeError(f"'prompt' must be a str, got {_shown(text)}")
    if salt is not None and not isinstance(salt, str):
        raise TypeError(f"'cache_salt' must be a str, got {_shown(salt)}")
    if salt == "":
        raise ValidationError("cache_salt must be a non-empty string", parameter="cache_salt", value=salt)
    return Prompt(text, None if ids is None else _parse_ids(ids), salt)


def parse_prompt(prompt: Any) -> Prompt:
    """One prompt. Raises TypeError for what is none, ValidationError for ids [] and other media."""
    if isinstance(prompt, str):
        return Prompt(prompt, None)
    if isinstance(prompt, dict):
        return _parse_dict(prompt)
    if isinstance(prompt, (list, tuple)):
        return Prompt(None, _parse_ids(prompt))
    raise TypeError(f"a prompt must be a str, a list of token ids or a dict, got {_shown(prompt)}")


def parse_prompts(prompts: Any) -> list[Prompt]:
    """One prompt or a list of them. Raises as parse_prompt, and ValidationError for an empty list."""
    if not isinstance(prompts, (list, tuple)):
        return [parse_prompt(prompts)]
    if not prompts:
        raise ValidationError("at least one prompt is needed, got an empty list")
    if all(isinstance(p, (str, dict, list, tuple)) for p in prompts):
        return [parse_prompt(p) for p in prompts]
    if any(isinstance(p, (str, dict, list, tuple)) for p in prompts):
        odd = next(p for p in prompts if not isinstance(p, (str, dict, list, tuple)))
        raise TypeError(f"a prompt must be a str, a list of token ids or a dict, got {_shown(odd)}")
    return [parse_prompt(prompts)]
