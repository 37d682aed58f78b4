#!/usr/bin/env python3
"""flags_doc.py PROGRAM: writes the program's own tables of flags into docs/SERVING.md, between the markers.
`make check` fails while they differ (tests/cli/test_serve_flags.c).
"""
import subprocess
import sys
from pathlib import Path

DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "SERVING.md"
BEGIN, END = "<!-- flags: begin -->\n", "<!-- flags: end -->\n"

tables = subprocess.run([sys.argv[1], "serve", "--help-markdown"], capture_output=True, text=True, check=True).stdout
before, rest = DOCUMENT.read_text().split(BEGIN)
after = rest.split(END)[1]
DOCUMENT.write_text(before + BEGIN + tables + END + after)
