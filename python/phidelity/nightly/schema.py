"""Reading what a configuration file holds, strictly: kinds of values that combine, and errors that name the key.

A kind is a function (value, where) -> value; `where` is the key's path, such as models[0].path.
"""
from __future__ import annotations

import difflib
import json
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, NoReturn

    Kind = Callable[[Any, str], Any]


class MatrixError(ValueError):
    """What the file may not say: the key, what was found, and what is allowed."""


def refuse(value: Any, where: str, expected: str) -> NoReturn:
    raise MatrixError(f"{where}: expected {expected}, got {json.dumps(value, ensure_ascii=False)}")


def text(value: Any, where: str) -> str:
    if not isinstance(value, str) or not value:
        refuse(value, where, "text")
    return value


def flag(value: Any, where: str) -> bool:
    if not isinstance(value, bool):
        refuse(value, where, "true or false")
    return value


def matching(pattern: str, expected: str) -> Kind:
    """Text that a regular expression describes, told as `expected`."""
    def read(value: Any, where: str) -> str:
        if not isinstance(value, str) or not re.fullmatch(pattern, value):
            refuse(value, where, expected)
        return value
    return read


def number(least: float, most: float) -> Kind:
    def read(value: Any, where: str) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= most:
            refuse(value, where, f"a number from {least:g} to {most:g}")
        return value
    return read


def whole(least: int) -> Kind:
    def read(value: Any, where: str) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            refuse(value, where, f"a whole number of at least {least}")
        return value
    return read


def whole_or(word: str, least: int) -> Kind:
    """A whole number, or the one word that stands for a choice of the program's."""
    def read(value: Any, where: str) -> Any:
        if value == word:
            return value
        try:
            return whole(least)(value, where)
        except MatrixError:
            refuse(value, where, f"'{word}' or a whole number of at least {least}")
    return read


def one_of(*names: str) -> Kind:
    def read(value: Any, where: str) -> str:
        if value not in names or not isinstance(value, str):
            refuse(value, where, "one of " + ", ".join(names))
        return value
    return read


def list_of(kind: Kind) -> Kind:
    """A list that holds something, and nothing twice."""
    def read(value: Any, where: str) -> list[Any]:
        if not isinstance(value, list) or not value:
            refuse(value, where, "a list, as [a, b]")
        items = [kind(item, f"{where}[{i}]") for i, item in enumerate(value)]
        for i, item in enumerate(items):
            if item in items[:i]:
                raise MatrixError(f"{where}[{i}]: {json.dumps(item)} is there already")
        return items
    return read


def mapping_of(key: Kind, kind: Kind) -> Kind:
    """Any number of keys, each of which `key` allows."""
    def read(value: Any, where: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            refuse(value, where, "a mapping, as {a: 1}")
        return {key(name, f"{where} (its key)"): kind(item, f"{where}.{name}") for name, item in value.items()}
    return read


def fields(kinds: dict[str, Kind], needed: Sequence[str] = ()) -> Kind:
    """A mapping with these keys and no others."""
    allowed = ", ".join(kinds)

    def read(value: Any, where: str) -> dict[str, Any]:
        place = where or "the file"
        if not isinstance(value, dict):
            refuse(value, place, f"a mapping with the keys {allowed}")
        for key in value:
            if key not in kinds:
                near = difflib.get_close_matches(str(key), kinds, 1)
                hint = f" (perhaps '{near[0]}' is meant)" if near else ""
                raise MatrixError(f"{place}: there is no key '{key}'{hint}; allowed: {allowed}")
        for key in needed:
            if key not in value:
                raise MatrixError(f"{place}: '{key}' is missing")
        prefix = where + "." if where else ""
        return {key: kinds[key](item, prefix + key) for key, item in value.items()}
    return read
