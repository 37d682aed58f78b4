#!/usr/bin/env python3
"""summary.py REPORT: one line that counts the cases of a test run, "N passed, N failed".

REPORT is Meson's testlog.json (its programs report cases as TAP) or pytest's JUnit file. Exits 1
when a case failed or nothing ran: a missing or empty report counts as one failure.
"""
import json
import re
import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter

CASE = re.compile(r"^\s*(not )?ok\b[^#]*(#\s*skip)?", re.IGNORECASE)


def meson_counts(path):
    counts = Counter()
    with open(path) as log:
        for line in log:
            test = json.loads(line)
            cases = Counter()
            for match in filter(None, map(CASE.match, (test.get("stdout") or "").splitlines())):
                cases["failed" if match[1] else "skipped" if match[2] else "passed"] += 1
            good = test["result"] in ("OK", "SKIP", "EXPECTEDFAIL")
            if not good and not cases["failed"]:
                cases["failed"] += 1  # died between its cases, or too slow
            if good and not cases:
                cases["skipped" if test["result"] == "SKIP" else "passed"] += 1
            counts += cases
    return counts


def junit_counts(path):
    counts = Counter()
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        if case.find("failure") is not None or case.find("error") is not None:
            counts["failed"] += 1
        else:
            counts["passed" if case.find("skipped") is None else "skipped"] += 1
    return counts


def main():
    path = sys.argv[1]
    try:
        counts = junit_counts(path) if path.endswith(".xml") else meson_counts(path)
    except (OSError, ValueError, KeyError, ElementTree.ParseError) as error:
        print(f"no report: {error}", file=sys.stderr)
        counts = Counter()
    if counts["passed"] + counts["failed"] == 0:
        counts["failed"] = 1
    line = f"{counts['passed']} passed, {counts['failed']} failed"
    print(line + (f", {counts['skipped']} skipped" if counts["skipped"] else ""))
    return 1 if counts["failed"] else 0


sys.exit(main())
