"""The plain part of YAML, which configuration files of eval and nightly are written in, read strictly.

    read_yaml("gate.yaml")   # dicts, lists, str, int, float, bool, None

Nested mappings and lists by indentation, [lists] and {mappings} on one line, quoted and plain scalars,
comments. What has several readings or hides something is an error that names line and remedy, and
not a guess: anchors, tags, several documents, text over several lines, a key twice, tabs, yes and no.
A reader of our own and not PyYAML: the package needs nothing beside cffi, and a file means the same everywhere.
"""
from __future__ import annotations

import json
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

_INT = re.compile(r"[-+]?(?:0|[1-9][0-9]*)")
_FLOAT = re.compile(r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?")
_WORDS = {"": None, "~": None, "null": None, "true": True, "false": False}
_UNSURE = re.compile(r"yes|no|on|off|[-+]?0[0-9]+|0[xo].*|[-+]?\.(?:inf|nan)", re.IGNORECASE)
_UNREAD = {"&": "anchors", "*": "aliases", "!": "tags", "|": "text over several lines",
           ">": "text over several lines", "%": "directives", "@": "a leading @", "`": "a leading `",
           "?": "keys over several lines"}
_QUOTED = r"""("(?:[^"\\]|\\.)*"|'(?:[^']|'')*')"""
_KEY = re.compile("(?:" + _QUOTED + r"""|([^"'\s].*?))\s*:(?:\s+|$)""")
_QUOTED_OR_COMMENT = re.compile(r"(?:^|(?<=[\s\[{,]))" + _QUOTED + r"|(?:^|(?<=\s))#.*")
_FLOW_SCALAR = re.compile(_QUOTED + r"|[^,\[\]{}]*?(?=\s*(?:[,\]}]|:\s|:$|$))")


class YamlError(ValueError):
    """What cannot be read, as "file:line: what is wrong, and what would be right"."""


class _Line:
    """One line that says something: its number, its indentation, and the text without comment."""

    __slots__ = ("number", "indent", "text")

    def __init__(self, number: int, indent: int, text: str) -> None:
        self.number = number
        self.indent = indent
        self.text = text

    def is_item(self) -> bool:
        return self.text == "-" or self.text.startswith("- ")


def _without_comment(text: str) -> str:
    """A quote inside a word is an apostrophe, a # inside a word or quotes is itself."""
    return _QUOTED_OR_COMMENT.sub(lambda match: match[1] or "", text).rstrip()


class _Reader:
    def __init__(self, text: str, name: str) -> None:
        self.name = name
        self.at = 0
        self.lines: list[_Line] = []
        for number, raw in enumerate(text.splitlines(), 1):
            kept = _without_comment(raw)
            content = kept.lstrip(" ")
            if not content or (content == "---" and not self.lines):
                continue
            line = _Line(number, len(kept) - len(content), content)
            if content[0] == "\t":
                self.fail(line, "a tab indents it: use spaces")
            if content in ("---", "..."):
                self.fail(line, "one document a file, please")
            self.lines.append(line)

    def fail(self, line: _Line, what: str) -> NoReturn:
        raise YamlError(f"{self.name}:{line.number}: {what}")

    # ---------------------------------------------------------------- blocks

    def line(self) -> _Line | None:
        return self.lines[self.at] if self.at < len(self.lines) else None

    def document(self) -> Any:
        first = self.line()
        value = self.block(first.indent) if first else None
        rest = self.line()
        if rest:
            self.fail(rest, "it does not continue what stands above it")
        return value

    def block(self, indent: int) -> Any:
        line = self.lines[self.at]
        if line.is_item():
            return self.sequence(indent)
        if line.text[0] not in "[{" and _KEY.match(line.text):
            return self.mapping(indent)
        self.at += 1
        return self.inline(line, line.text)

    def sequence(self, indent: int) -> list[Any]:
        items: list[Any] = []
        while (line := self.line()) and line.indent >= indent:
            self.check_indent(line, indent)
            if not line.is_item():
                break
            rest = line.text[1:].lstrip()
            if rest:  # "- name: x" is a block that begins where its text does
                line.indent += len(line.text) - len(rest)
                line.text = rest
                items.append(self.block(line.indent))
            else:
                self.at += 1
                items.append(self.nested(indent))
        return items

    def mapping(self, indent: int) -> dict[Any, Any]:
        pairs: dict[Any, Any] = {}
        while (line := self.line()) and line.indent >= indent:
            self.check_indent(line, indent)
            if line.is_item():
                break
            match = _KEY.match(line.text)
            if not match:
                self.fail(line, f"expected 'key: value', got '{line.text}'")
            self.at += 1
            key = self.scalar(line, match[1] or match[2])
            self.add(line, pairs, key, self.value(line, line.text[match.end():], indent))
        return pairs

    def value(self, line: _Line, rest: str, indent: int) -> Any:
        if rest:
            return self.inline(line, rest)
        below = self.line()
        if below and below.indent == indent and below.is_item():  # a list may stand right under its key
            return self.sequence(indent)
        return self.nested(indent)

    def nested(self, indent: int) -> Any:
        below = self.line()
        return self.block(below.indent) if below and below.indent > indent else None

    def check_indent(self, line: _Line, indent: int) -> None:
        if line.indent > indent:
            self.fail(line, f"it is indented by {line.indent} where {indent} was expected")

    def add(self, line: _Line, pairs: dict[Any, Any], key: Any, value: Any) -> None:
        if key in pairs:
            self.fail(line, f"the key '{key}' stands here for the second time")
        pairs[key] = value

    # ---------------------------------------------------------------- on one line

    def inline(self, line: _Line, text: str) -> Any:
        if text == "-" or text.startswith("- "):
            self.fail(line, "a list begins on a line of its own, or is written as [a, b]")
        if text[0] not in "[{":
            return self.scalar(line, text)
        value, end = self.flow(line, text, 0)
        if text[end:].strip():
            self.fail(line, f"'{text[end:].strip()}' stands behind the closing bracket")
        return value

    def flow(self, line: _Line, text: str, at: int) -> tuple[Any, int]:
        """What begins at text[at], and where it ends."""
        if text[at] == "[":
            return self.flow_items(line, text, at + 1, "]")
        if text[at] == "{":
            return self.flow_items(line, text, at + 1, "}")
        match = _FLOW_SCALAR.match(text, at)
        if not match:
            self.fail(line, f"cannot read '{text[at:]}': quotes may be missing")
        return self.scalar(line, match[0]), match.end()

    def flow_items(self, line: _Line, text: str, at: int, closing: str) -> tuple[Any, int]:
        items: list[Any] = []
        pairs: dict[Any, Any] = {}
        while True:
            at = self.skip(line, text, at, closing)
            if text[at] == closing:
                return (items if closing == "]" else pairs), at + 1
            start = at
            item, at = self.flow(line, text, at)
            if at == start:
                self.fail(line, f"something is missing before '{text[at:]}'")
            at = self.skip(line, text, at, closing)
            if closing == "]":
                items.append(item)
            elif text[at] != ":" or isinstance(item, (list, dict)):
                self.fail(line, f"expected 'key: value' between braces, got '{text[start:at].strip()}'")
            else:
                value, at = self.flow(line, text, self.skip(line, text, at + 1, closing))
                self.add(line, pairs, item, value)
                at = self.skip(line, text, at, closing)
            if text[at] == ",":
                at += 1
            elif text[at] != closing:
                self.fail(line, f"expected ',' or '{closing}' before '{text[at:]}'")

    def skip(self, line: _Line, text: str, at: int, closing: str) -> int:
        while at < len(text) and text[at] in " \t":
            at += 1
        if at == len(text):
            self.fail(line, f"'{closing}' is missing: what opens on a line must close on it")
        return at

    def scalar(self, line: _Line, text: str) -> Any:
        if text[:1] == '"':
            return self.double_quoted(line, text)
        if text[:1] == "'":
            if not re.fullmatch(r"'(?:[^']|'')*'", text):
                self.fail(line, f"the quotes of {text} do not end at its end")
            return text[1:-1].replace("''", "'")
        if text[:1] in _UNREAD:
            self.fail(line, f"'{text}': {_UNREAD[text[0]]} cannot be read here; plain values, please "
                            "(text that begins so needs quotes)")
        if text in _WORDS:
            return _WORDS[text]
        if _INT.fullmatch(text):
            return int(text)
        if _FLOAT.fullmatch(text):
            return float(text)
        if _UNSURE.fullmatch(text):
            self.fail(line, f"'{text}' has several readings: write true, false, a decimal number, or quotes around it")
        if re.search(r":\s|:$", text):
            self.fail(line, f"'{text}': text with a colon needs quotes")
        return text

    def double_quoted(self, line: _Line, text: str) -> str:
        try:
            return str(json.loads(text, strict=False))
        except ValueError:
            self.fail(line, f"{text}: quotes must end at the end, and escapes be \\n, \\t, \\\\, \\\" or \\uXXXX")


def parse_yaml(text: str, name: str = "yaml") -> Any:
    """The value of a text; `name` stands in errors. Raises YamlError."""
    return _Reader(text, name).document()


def read_yaml(path: str) -> Any:
    """The value of a file. Raises OSError, and YamlError for what cannot be read, UTF-8 included."""
    with open(path, "rb") as file:
        data = file.read()
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise YamlError(f"{path}:{data.count(10, 0, error.start) + 1}: not UTF-8") from None
    return parse_yaml(text, path)
