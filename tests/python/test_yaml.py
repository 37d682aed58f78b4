#!/usr/bin/env python3
"""phidelity.plain_yaml: what it reads, and what it says about everything else.

PYTHONPATH names the built package. Prints TAP.
"""
import os
import re
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import tap

from phidelity.plain_yaml import YamlError, parse_yaml, read_yaml

# (text, value)
READ = [
    ("", None),
    ("# only a comment\n\n", None),
    ("word", "word"),
    ("---\na: 1", {"a": 1}),
    ("a: 1\nb: x\n", {"a": 1, "b": "x"}),
    ("  a: 1\n  b: 2", {"a": 1, "b": 2}),
    ("a : 3", {"a": 3}),
    ("a:\nb: ~\nc: null", {"a": None, "b": None, "c": None}),
    ("a: true\nb: false", {"a": True, "b": False}),
    ("a: -3\nb: +4\nc: 0", {"a": -3, "b": 4, "c": 0}),
    ("a: 0.81\nb: 1.\nc: .5\nd: 1e-3\ne: -1.5E+3", {"a": 0.81, "b": 1.0, "c": 0.5, "d": 0.001, "e": -1500.0}),
    ("a: 1.2.3\nb: v1\nc: 1 2", {"a": "1.2.3", "b": "v1", "c": "1 2"}),
    ("a: http://host:80/x", {"a": "http://host:80/x"}),
    ("exact_match,strict-match: 0.8", {"exact_match,strict-match": 0.8}),
    ("'a b': \"c\\nd\\u00e9\"\n\"e\": 'it''s'", {"a b": "c\ndé", "e": "it's"}),
    ("a: \"1\"\nb: '2'\nc: 'yes'", {"a": "1", "b": "2", "c": "yes"}),
    ("a: don't # comment\nb: x#y\nc: 'x # y' # z\nd: # nothing", {"a": "don't", "b": "x#y", "c": "x # y", "d": None}),
    ("a:\n  b:\n    c: 1\n  d: 2\ne: 3", {"a": {"b": {"c": 1}, "d": 2}, "e": 3}),
    ("- 1\n- x\n-\n  - 3\n-\n", [1, "x", [3], None]),
    ("- - 1\n  - 2\n- 3", [[1, 2], 3]),
    ("tasks:\n- name: a\n  metrics:\n  - name: m\n    value: 1\n- name: b\nx: 1",
     {"tasks": [{"name": "a", "metrics": [{"name": "m", "value": 1}]}, {"name": "b"}], "x": 1}),
    ("tasks:\n    -   name: a\n        value: 1\n", {"tasks": [{"name": "a", "value": 1}]}),
    ("[]", []),
    ("{}", {}),
    ("[1, 'a,b', {c: d, e: [f]}, g h]", [1, "a,b", {"c": "d", "e": ["f"]}, "g h"]),
    ("a: {b: {c: 1}, 'd e': \"f\"} # x\ng: [x:y, ]", {"a": {"b": {"c": 1}, "d e": "f"}, "g": ["x:y"]}),
]

# (text, line, words of the error)
REFUSED = [
    ("a: 1\na: 2", 2, "the key 'a' stands here for the second time"),
    ("a: {b: 1, b: 2}", 1, "the key 'b' stands here for the second time"),
    ("a: 1\n b: 2", 2, "it is indented by 1 where 0 was expected"),
    ("a:\n  - 1\n b: 2", 3, "it is indented by 1 where 0 was expected"),
    ("a: 1\n\n- 2", 3, "it does not continue what stands above it"),
    ("- 1\nb: 2", 2, "it does not continue what stands above it"),
    ("  a: 1\nb: 2", 2, "it does not continue what stands above it"),
    ("\ta: 1", 1, "a tab indents it: use spaces"),
    ("a: 1\n---\nb: 2", 2, "one document a file, please"),
    ("a: 1\nb", 2, "expected 'key: value', got 'b'"),
    ("a: b: c", 1, "text with a colon needs quotes"),
    ("a: - 1", 1, "a list begins on a line of its own, or is written as [a, b]"),
    ("a: &x 1", 1, "anchors cannot be read here"),
    ("a: *x", 1, "aliases cannot be read here"),
    ("a: !function f", 1, "tags cannot be read here"),
    ("a: |\n  text", 1, "text over several lines cannot be read here"),
    ("a: yes", 1, "'yes' has several readings: write true, false, a decimal number, or quotes around it"),
    ("a: Off", 1, "several readings"),
    ("a: 007", 1, "several readings"),
    ("a: 0x10", 1, "several readings"),
    ("a: .inf", 1, "several readings"),
    ("a: 'x", 1, "the quotes of 'x do not end at its end"),
    ("a: 'x' y", 1, "the quotes of 'x' y do not end at its end"),
    ('a: "\\q"', 1, "quotes must end at the end, and escapes be"),
    ("a: [1, 2", 1, "']' is missing: what opens on a line must close on it"),
    ("a: [1,\n  2]", 1, "']' is missing"),
    ("a: [1, 2] x", 1, "'x' stands behind the closing bracket"),
    ("a: [1, , 2]", 1, "something is missing before ', 2]'"),
    ("a: [b: 1]", 1, "expected ',' or ']' before ': 1]'"),
    ("a: {b}", 1, "expected 'key: value' between braces, got 'b'"),
    ("a: {[b]: 1}", 1, "expected 'key: value' between braces, got '[b]'"),
    ("a: {b: 1]", 1, "expected ',' or '}' before ']'"),
]


class Yaml(unittest.TestCase):
    def test_reads(self):
        for text, value in READ:
            with self.subTest(text):
                found = parse_yaml(text)
                self.assertEqual(found, value)
                self.assertEqual(repr(found), repr(value))  # 1, 1.0 and True are equal

    def test_refuses(self):
        for text, line, words in REFUSED:
            with self.subTest(text), self.assertRaisesRegex(YamlError, f"^name:{line}: .*" + re.escape(words)):
                parse_yaml(text, "name")

    def test_files(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "x.yaml")
            with self.assertRaises(FileNotFoundError):
                read_yaml(path)
            Path(path).write_bytes(b"\xef\xbb\xbfa: \xc3\xa9\r\nb: 2\r\n")
            self.assertEqual(read_yaml(path), {"a": "é", "b": 2})
            Path(path).write_bytes(b"a: 1\nb: \xff\n")
            with self.assertRaisesRegex(YamlError, "x.yaml:2: not UTF-8"):
                read_yaml(path)


if __name__ == "__main__":
    tap.main()
