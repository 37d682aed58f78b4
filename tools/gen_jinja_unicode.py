#!/usr/bin/env python3
"""Writes src/formats/jinja/unicode_tables.h: what Python's str methods know about each character, as ranges.

The tables are taken from the str methods of the Python that runs this script, so that templates see
exactly its letters and cases: `python3 tools/gen_jinja_unicode.py > src/formats/jinja/unicode_tables.h`.
"""
import sys
import unicodedata

LAST = sys.maxunicode


def code_points():
    return (c for c in range(LAST + 1) if not 0xD800 <= c <= 0xDFFF)


def ranges(members):
    """Runs with step 1 or 2 (upper and lower case letters alternate in many scripts)."""
    out = []
    for c in members:
        if out and out[-1][2] == 0 and c - out[-1][0] in (1, 2):
            out[-1][1], out[-1][2] = c, c - out[-1][0]
        elif out and out[-1][2] and c == out[-1][1] + out[-1][2]:
            out[-1][1] = c
        else:
            out.append([c, c, 0])
    return [(a, b, step or 1) for a, b, step in out]


def print_ranges(name, members):
    rows = ranges(members)
    print(f"static const struct range {name}[] = {{")
    print_cells([f"{{0x{a:x}, 0x{b:x}, {s}}}" for a, b, s in rows])
    print("};\n")


def print_cells(cells):
    line = "   "
    for cell in cells:
        if len(line) + len(cell) + 2 > 100:
            print(line)
            line = "   "
        line += " " + cell + ","
    print(line)


def print_map(name, function):
    simple, special = [], []
    for c in code_points():
        to = [ord(x) for x in function(chr(c))]
        if to == [c]:
            continue
        if len(to) > 1:
            special.append((c, to))
            continue
        delta = to[0] - c
        last = simple[-1] if simple else None
        if last and last[3] == delta and last[2] == 0 and c - last[0] in (1, 2):
            last[1], last[2] = c, c - last[0]
        elif last and last[3] == delta and last[2] and c == last[1] + last[2]:
            last[1] = c
        else:
            simple.append([c, c, 0, delta])
    print(f"static const struct shift {name}_shifts[] = {{")
    print_cells([f"{{0x{a:x}, 0x{b:x}, {s or 1}, {d}}}" for a, b, s, d in simple])
    print("};\n")
    print(f"static const struct special {name}_specials[] = {{")
    print_cells(["{0x%x, {%s}}" % (c, ", ".join(f"0x{t:x}" for t in to)) for c, to in special])
    print("};\n")


def cased(c):
    """title() goes on in lower case behind it."""
    return (chr(c) + "a").title().endswith("a")


def case_ignorable(c):
    """A mark that the rule for the final sigma looks through."""
    return ("a\u03a3" + chr(c) + "a").lower()[1] == "\u03c3" and ("a\u03a3" + chr(c)).lower()[1] == "\u03c2"


def main():
    print("/* unicode_tables.h: characters as the str methods of Python know them (Unicode")
    print(f" * {unicodedata.unidata_version}). Made by tools/gen_jinja_unicode.py; included by unicode.c only. */")
    print("/* clang-format off */")
    for name in ("alpha", "decimal", "digit", "numeric", "upper", "lower"):
        print_ranges(name, [c for c in code_points() if getattr(chr(c), "is" + name)()])
    print_ranges("unprintable", [c for c in code_points() if not chr(c).isprintable()])
    print_ranges("title_case", [c for c in code_points() if unicodedata.category(chr(c)) == "Lt"])
    print_ranges("cased", [c for c in code_points() if cased(c)])
    print_ranges("case_ignorable", [c for c in code_points() if case_ignorable(c)])
    print_map("to_upper", str.upper)
    print_map("to_lower", lambda s: s.lower() if s != "\u03a3" else "\u03c3")
    print_map("to_title", str.title)


main()
