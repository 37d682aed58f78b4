"""An opened checkpoint, and the rule by which handles of the library are freed.

Whatever has a handle frees it when it is closed or nobody holds it any more, whichever comes first, and
never twice. In a child that was forked from the process that made it nothing is touched, since the
library's threads are not there; nor at the end of the interpreter, since daemon threads may be inside.
"""
from __future__ import annotations

import os
import weakref

from ._library import call, ffi, lib
from .exceptions import ValidationError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def _only_here(pid: int, release: Any, *arguments: Any) -> None:
    if os.getpid() == pid:
        release(*arguments)


def free_with(owner: object, release: Any, *arguments: Any) -> weakref.finalize:
    """Calls release(*arguments) once, when `owner` goes or the result is called."""
    finalizer = weakref.finalize(owner, _only_here, os.getpid(), release, *arguments)
    finalizer.atexit = False
    return finalizer


def set_fields(options: Any, settings: dict[str, Any]) -> None:
    """Sets fields of a struct. Raises ValidationError for a number that one cannot hold."""
    for name, value in settings.items():
        try:
            setattr(options, name, value)
        except OverflowError:
            raise ValidationError(f"{name} is too large: {value}", parameter=name, value=value) from None


class Model:
    """An opened checkpoint. `settings` are fields of struct phi_model_options."""

    def __init__(self, path: str, tokenizer: str | None, chat_template: str | None, **settings: Any) -> None:
        options = ffi.new("struct phi_model_options *")
        lib.phi_model_options_init(options)
        kept = []
        for name, text in (("path", path), ("tokenizer", tokenizer), ("chat_template", chat_template)):
            if text is not None:
                kept.append(ffi.new("char[]", os.fsencode(text)))
                setattr(options, name, kept[-1])
        set_fields(options, settings)
        out = ffi.new("struct phi_model **")
        call(lib.phi_model_open, options, out)
        self.path = path
        self.tokenizer_path = os.fspath(tokenizer or path)
        self.chat_template = chat_template  # as given: a file or a text; None: the folder's
        self.pointer = out[0]
        self._finalizer = free_with(self, lib.phi_model_close, out[0])
        self.info = ffi.new("struct phi_model_info *")
        lib.phi_model_get_info(self.pointer, self.info)
