"""A guide whose commands run: its shell blocks, read as a session and replayed with what it shows.

In a guide, an indented block is a terminal: a line that begins with "$ " is a command (it goes on while
lines end in a backslash), the lines below it are what it prints. "..." stands for any part of a line, and
alone on a line for any lines. All commands of a file are one session, in order. A fenced block (```sh) is
what cannot run in a test; whoever replays must know each by its first line.
"""
import os
import re
import signal
import socket
import subprocess
from pathlib import Path
from typing import List, NamedTuple, Optional

MARK = "\x1e"  # before the number of a command, and after it its exit code
SHOWN_FOLDERS = ("models", "deploy", "tools", "tests", "python", "docs")


class Command(NamedTuple):
    line: int
    text: str
    output: List[str]


class Fence(NamedTuple):
    line: int
    language: str
    lines: List[str]


def read(path):
    """([Command], [Fence], [lines of indented blocks that are neither command nor output])"""
    commands, fences, stray = [], [], []
    fence: Optional[Fence] = None
    in_block = False
    for number, line in enumerate(Path(path).read_text().splitlines(), 1):
        if line.startswith("```"):
            if fence:
                fences.append(fence)
                fence = None
            else:
                fence = Fence(number, line[3:], [])
                in_block = False
        elif fence:
            fence.lines.append(line)
        elif line.startswith("    $ "):
            commands.append(Command(number, line[6:], []))
            in_block = True
        elif line.startswith("    ") and commands and in_block:
            last = commands[-1]
            if last.text.endswith("\\") and not last.output:
                commands[-1] = last._replace(text=last.text + "\n" + line[4:])
            else:
                last.output.append(line[4:])
        elif line.startswith("    "):
            stray.append(f"{number}: {line}")
        elif line:
            in_block = False
        elif commands and in_block and commands[-1].output:
            commands[-1].output.append("")
    for command in commands:
        while command.output and not command.output[-1]:
            command.output.pop()
    return commands, fences, stray


def matches(shown, printed):
    """Whether the printed text is what the guide's lines show; columns of tables may be wider or narrower."""
    parts = []
    for line in shown:
        if line.strip() == "...":
            parts.append(r"(?:[^\n]*\n)*?")
        else:
            parts.append("[^\n]*".join(re.escape(piece) for piece in line.rstrip().split("...")) + r"[ \t]*\n")
    pattern = re.sub(r"(?:\\ ){2,}", " {2,}", "".join(parts))
    return re.fullmatch(pattern, printed.rstrip("\n") + "\n") is not None


def free_ports(n):
    """The first of n ports in a row that nobody listens on."""
    for first in range(20000 + os.getpid() % 10000, 60000, n):
        try:
            for port in range(first, first + n):
                with socket.socket() as s:
                    s.bind(("127.0.0.1", port))
            return first
        except OSError:
            pass
    raise AssertionError(f"no {n} free ports in a row")


def replay(commands, folder, programs, environment=(), timeout_s=300):
    """Runs the commands as one bash session in the folder, with links to the checkout's folders in it.
    programs, {name: shell words it stands for}, come first in PATH. Returns [(exit code or None, what it
    printed)], None for what did not end."""
    root = Path(__file__).resolve().parents[2]
    for name in SHOWN_FOLDERS:
        (folder / name).symlink_to(root / name)
    (folder / ".bin").mkdir()
    for name, words in programs.items():
        wrapper = folder / ".bin" / name
        wrapper.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
        wrapper.chmod(0o755)
    script = ["exec 2>&1"]
    for number, command in enumerate(commands):
        script += [f"printf '{MARK}{number}\\n'", command.text, f"printf '{MARK}=%d\\n' $?"]
    path = f"{folder / '.bin'}:{os.environ['PATH']}"
    session = subprocess.Popen(
        ["bash", "-c", "\n".join(script)], cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        env={**os.environ, "PATH": path, "PORT": str(free_ports(4)), **dict(environment)},
        start_new_session=True)
    try:
        text = session.communicate(timeout=timeout_s)[0].decode(errors="replace")
    except subprocess.TimeoutExpired:
        os.killpg(session.pid, signal.SIGKILL)
        text = session.communicate()[0].decode(errors="replace")
    finally:
        try:
            os.killpg(session.pid, signal.SIGKILL)  # what the guide left running
        except ProcessLookupError:
            pass
    results = [(None, "")] * len(commands)
    for found in re.finditer(rf"{MARK}(\d+)\n(.*?)(?:{MARK}=(\d+)\n|\Z)", text, re.DOTALL):
        results[int(found[1])] = (None if found[3] is None else int(found[3]), found[2])
    return results
