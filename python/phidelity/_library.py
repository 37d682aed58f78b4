"""The C library: loading it, its errors as exceptions, its strings and lists.

Nothing here knows what a request is. All functions of the library are called through cffi, which
gives up the interpreter's lock while they run.
"""
from __future__ import annotations

import os

from ._cffi import ffi
from .exceptions import EngineError, ValidationError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

lib = ffi.dlopen(os.path.join(os.path.dirname(os.path.abspath(__file__)), "libphidelity.so"))

__version__: str = ffi.string(lib.phi_version()).decode()

_LEVELS = {"DEBUG": 0, "INFO": 1, "WARNING": 2, "ERROR": 3, "CRITICAL": 3}


def start_log() -> None:
    """Log lines of the library go to standard error from PHI_LOG_LEVEL (or vLLM's variable) on."""
    level = os.environ.get("PHI_LOG_LEVEL") or os.environ.get("VLLM_LOGGING_LEVEL") or "WARNING"
    lib.phi_python_log(_LEVELS.get(level.upper(), _LEVELS["WARNING"]))


def exception_of(code: int, text: str) -> Exception:
    """The exception for a phi_status."""
    if code == lib.PHI_ERR_MEMORY:
        return MemoryError(text)
    if code == lib.PHI_ERR_IO:
        return OSError(text)
    if code in (lib.PHI_ERR_INVALID, lib.PHI_ERR_FORMAT, lib.PHI_ERR_UNSUPPORTED, lib.PHI_ERR_TOO_LONG):
        return ValidationError(text)
    return EngineError(text)


def call(function: Callable[..., int], *arguments: Any) -> None:
    """Calls a function that returns a phi_status and takes a phi_error last; raises on failure."""
    err = ffi.new("struct phi_error *")
    try:
        code = function(*arguments, err)
    except OverflowError as overflow:  # cffi's, of a number that its C type cannot hold
        raise ValidationError(str(overflow)) from None
    if code != lib.PHI_OK:
        raise exception_of(code, ffi.string(err.text).decode("utf-8", "replace"))


def text_of(value: str, kept: list[Any]) -> Any:
    """A struct phi_text; what it points to lives as long as `kept`.

    Raises UnicodeEncodeError (a ValueError) for a lone surrogate, which no UTF-8 can express.
    """
    data = value.encode("utf-8")
    buffer = ffi.from_buffer(data)
    kept.append(buffer)
    return ffi.new("struct phi_text *", {"data": ffi.cast("const char *", buffer), "n": len(data)})[0]


def ids_of(ids: Sequence[int], kept: list[Any], what: str = "Token id") -> Any:
    """An int32_t array. Raises ValidationError for numbers that are no token of any model."""
    try:
        array = ffi.new("int32_t[]", ids)
    except OverflowError:
        worst = max(ids, key=abs)
        raise ValidationError(f"{what} {worst} is out of vocabulary.") from None
    kept.append(array)
    return array


def take_bytes(function: Callable[..., int], *arguments: Any) -> bytes:
    """Calls a function that hands out a text (its last arguments: **text, *n, *err) and frees that."""
    text, n = ffi.new("char **"), ffi.new("size_t *")
    call(function, *arguments, text, n)
    try:
        return bytes(ffi.buffer(text[0], n[0]))
    finally:
        lib.phi_mem_free(text[0])


def take_ids(function: Callable[..., int], *arguments: Any) -> list[int]:
    """As take_bytes, for a list of ids."""
    ids, n = ffi.new("int32_t **"), ffi.new("size_t *")
    call(function, *arguments, ids, n)
    try:
        return ffi.unpack(ids[0], n[0]) if n[0] else []
    finally:
        lib.phi_mem_free(ids[0])
