#!/usr/bin/env python3
"""lint.py: the rules of CONTRIBUTING.md that a program can check, over every tracked source file.

Findings are errors, one per line as file:line: text. Notes (a line a little too long, a function or a file
that has grown) are counted, and shown with -v.
"""
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

# A file may include headers of its own floor and of the floors named here.
FLOORS = {
    "base": set(),
    "formats": {"base"},
    "kernels": {"base"},
    "model": {"base", "formats", "kernels"},
    "engine": {"base", "formats", "kernels", "model"},
    "server": {"base", "formats"},
    "cli": {"base", "formats", "server", "bench"},  # bench/: the machine's limits
}
LIBRARY = set(FLOORS) - {"cli"}

LINE_GOOD, LINE_MAX = 100, 120
FUNCTION_GOOD, FUNCTION_MAX = 70, 120
FILE_GOOD, FILE_MAX = 800, 1200

# Pattern, why, and where it is allowed all the same.
# (json.c hands jansson memory while a failed allocation is being reported.)
BANNED = [
    (r"\b(strcpy|strcat|sprintf|vsprintf|gets|strtok|alloca)\s*\(", "unbounded or unsafe", ()),
    (r"\b(atoi|atol|atoll|atof)\s*\(", "cannot report an error; use strto*", ()),
    (r"\b(malloc|calloc|realloc|strdup|strndup|posix_memalign|aligned_alloc)\s*\(",
     "the heap is reached through base/alloc.h", ("src/base/alloc.c", "src/formats/json.c")),
    (r"#\s*if\s+0\b", "dead code", ()),
    (r"\b(TODO|FIXME|XXX)\b", "unfinished", ()),
]
BANNED_IN_LIBRARY = [
    (r"\b(exit|_exit|abort|quick_exit)\s*\(", "the library never ends the program"),
    (r"\b(printf|puts|putchar|perror)\s*\(|\b(stdout|stderr)\b", "the library never prints"),
]

errors, notes = [], []


def without_comments_and_strings(text):
    """The same text with comments and literals blanked out, line breaks kept."""
    pattern = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.DOTALL)
    return pattern.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), text)


def check_text(name, lines):
    for number, line in enumerate(lines, 1):
        if line != line.rstrip() and not name.endswith(".py"):  # where a string may need them
            errors.append(f"{name}:{number}: blanks at the end of the line")
        if "\t" in line and not name.endswith("Makefile"):
            errors.append(f"{name}:{number}: a tab")


def check_lengths(name, lines):
    for number, line in enumerate(lines, 1):
        if len(line) > LINE_MAX:
            errors.append(f"{name}:{number}: {len(line)} columns")
        elif len(line) > LINE_GOOD:
            notes.append(f"{name}:{number}: {len(line)} columns")
    if len(lines) > FILE_GOOD and "_tables." not in name:  # those are generated
        (errors if len(lines) > FILE_MAX else notes).append(f"{name}: {len(lines)} lines")
    start = None
    for number, line in enumerate(lines, 1):
        if line == "{":
            start = number
        elif line == "}" and start:
            if number - start > FUNCTION_GOOD:
                (errors if number - start > FUNCTION_MAX else notes).append(
                    f"{name}:{start}: a function of {number - start} lines")
            start = None


def check_includes(name, code):
    floor = Path(name).parts[1]
    for number, line in enumerate(code, 1):
        match = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
        if not match:
            continue
        parts = Path(match[1]).parts
        if len(parts) == 1 and match[1] != "phidelity.h":
            errors.append(f'{name}:{number}: write "floor/{match[1]}"')
        elif len(parts) > 1 and parts[0] != floor and parts[0] not in FLOORS[floor]:
            errors.append(f"{name}:{number}: {floor} must not see {parts[0]}")


def check_banned(name, code):
    library = name.startswith("src/") and Path(name).parts[1] in LIBRARY
    for number, line in enumerate(code, 1):
        for pattern, why, allowed in BANNED:
            if name.startswith(("src/", "include/")) and name not in allowed \
                    and re.search(pattern, line):
                errors.append(f"{name}:{number}: {line.strip()[:50]} ({why})")
        for pattern, why in BANNED_IN_LIBRARY:
            if library and re.search(pattern, line):
                errors.append(f"{name}:{number}: {line.strip()[:50]} ({why})")


def check_c(name, text, lines):
    if not lines[0].startswith("/*"):
        errors.append(f"{name}:1: a file opens with a comment that says what it owns")
    code = without_comments_and_strings(text).splitlines()
    check_lengths(name, lines)
    check_banned(name, code)
    if name.startswith("src/") and len(Path(name).parts) > 2:
        check_includes(name, lines)


def main():
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True,
                             check=True).stdout.split("\n")
    endings = (".c", ".h", ".py", ".sh", ".build", ".md", "Makefile")
    names = [n for n in tracked if n.endswith(endings) and (ROOT / n).exists()]
    for name in names:
        text = (ROOT / name).read_text()
        lines = text.splitlines()
        if not lines:
            continue
        if not text.endswith("\n"):
            errors.append(f"{name}: no line end at the end of the file")
        check_text(name, lines)
        if name.endswith((".c", ".h")):
            check_c(name, text, lines)
    for finding in errors + (notes if "-v" in sys.argv else []):
        print(finding)
    print(f"lint: {len(names)} files, {len(errors)} errors, {len(notes)} notes")
    return 1 if errors else 0


sys.exit(main())
