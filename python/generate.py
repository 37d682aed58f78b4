#!/usr/bin/env python3
"""generate.py cffi HEADER... OUTPUT: the declarations of the headers as a module for cffi (its ABI mode).
generate.py symbols HEADER... OUTPUT: the same functions as the linker's list of what the library exports.
generate.py layout HEADER... OUTPUT: a C program that prints how the compiler lays out the same structs
and numbers the same constants, for the test that cffi does as well.

The headers are the one source: nothing in the package repeats a struct, a number or a name of theirs.
"""
import re
import sys
from pathlib import Path


def declarations(header):
    """What a C compiler sees of a header, without comments, preprocessor lines and extern "C"."""
    text = re.sub(r"/\*.*?\*/", " ", Path(header).read_text(encoding="utf-8"), flags=re.DOTALL)
    text = re.sub(r"#ifdef __cplusplus.*?#endif", "", text, flags=re.DOTALL)
    return "\n".join(line for line in text.splitlines() if line.strip() and not line.startswith("#"))


def parsed(text):
    import cffi
    ffi = cffi.FFI()
    ffi.set_source("phidelity._cffi", None)
    ffi.cdef(text)
    return ffi


def write_cffi(text, output):
    parsed(text).emit_python_code(str(output))


def write_layout(text, output):
    ffi = parsed(text)
    lines = []
    for name in ffi.list_types()[1]:
        fields = ffi.typeof(f"struct {name}").fields
        if fields:
            lines.append(f'    printf("{name} %zu\\n", sizeof(struct {name}));')
            lines += [f'    printf("{name}.{field} %zu\\n", offsetof(struct {name}, {field}));' for field, _ in fields]
    constants = re.findall(r"\b(PHI_\w+)\b", text)
    lines += [f'    printf("{name} %d\\n", (int){name});' for name in constants]
    Path(output).write_text("\n".join(['#include "waker.h"', "#include <stddef.h>", "#include <stdio.h>", "",
                                       "int main(void)", "{", *lines, "    return 0;", "}", ""]))


def write_symbols(text, output):
    """Functions stand at the beginning of a line, and only they are followed by parentheses there."""
    names = re.findall(r"^[a-z][\w ]*[ *](phi_\w+)\(", text, flags=re.MULTILINE)
    lines = [f"        {name};" for name in names]
    Path(output).write_text("\n".join(["{", "    global:", *lines, "    local: *;", "};", ""]))


def main():
    kind, *headers, output = sys.argv[1:]
    text = "\n".join(map(declarations, headers))
    {"cffi": write_cffi, "layout": write_layout, "symbols": write_symbols}[kind](text, output)


if __name__ == "__main__":
    main()
