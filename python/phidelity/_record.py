"""A base for plain value classes. (Importing dataclasses would be half of the package's import time.)"""
from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class _Fields:
    """What dataclasses.fields, asdict and replace look at: the constructor's arguments, once they ask."""

    def __init__(self) -> None:
        self._known: dict[type, dict[str, Any]] = {}

    def __get__(self, record: Record | None, kind: type) -> dict[str, Any]:
        if kind not in self._known:
            import dataclasses
            import inspect

            names = list(inspect.signature(kind).parameters)
            like = dataclasses.make_dataclass(kind.__name__, names)
            self._known[kind] = {field.name: field for field in dataclasses.fields(like)}
        return self._known[kind]


class Record:
    """Equality and a repr over the attributes, which are the constructor's arguments."""

    __dataclass_fields__ = _Fields()
    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return vars(self) == vars(other) if type(other) is type(self) else NotImplemented

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"
