#!/usr/bin/env python3
"""Reads the files under deploy/ and docs/SERVING.md as their readers would: syntax where the standard
library knows it, and that the metrics, files and anchors they name exist.

PHI_TESTS is the tests' folder. Prints TAP.
"""
import configparser
import ctypes
import json
import os
import re
import sys
import unittest
from pathlib import Path

ROOT = Path(os.environ["PHI_TESTS"]).resolve().parent
DEPLOY = ROOT / "deploy"
SERVING = (ROOT / "docs" / "SERVING.md").read_text()
NO_EVENT, STREAM_END, DOCUMENT_START = 0, 2, 3  # of libyaml
PROMQL_WORDS = {
    "sum", "rate", "by", "le", "job", "instance", "model_name", "source", "finished_reason", "handler",
    "status", "histogram_quantile", "label_values",
}


def known_flags():
    """Flags of `phidelity serve`, from the tables that tests/cli/test_serve_flags.c checks."""
    tables = SERVING.split("<!-- flags: begin -->")[1].split("<!-- flags: end -->")[0]
    return set(re.findall(r"--(?:\[no-\])?([a-z][a-z0-9-]+)", tables))


def known_series():
    """Names of samples, from the table of metrics that tests/server/test_metrics.c checks."""
    table = SERVING.split("<!-- metrics: begin -->")[1].split("<!-- metrics: end -->")[0]
    names = set()
    for name, kind in re.findall(r"(?m)^\| `([^`]+)` \| (gauge|counter|histogram) \|", table):
        names |= {name + s for s in ("_bucket", "_sum", "_count")} if kind == "histogram" else {name}
    return names


def series_of(expression):
    """Names of series in a PromQL expression: what is neither a word of the language, nor in a label's
    value, nor a duration."""
    text = re.sub(r'"[^"]*"|\[[^\]]*\]', " ", expression)
    return {w for w in re.findall(r"[A-Za-z_:][A-Za-z0-9_:]*", text) if w not in PROMQL_WORDS}


class Deploy(unittest.TestCase):
    def check_promql(self, expression, known):
        self.assertEqual(expression.count("("), expression.count(")"), expression)
        self.assertEqual(expression.count("{"), expression.count("}"), expression)
        names = series_of(expression)
        self.assertTrue(names, expression)
        self.assertLessEqual(names, known, expression)

    def test_grafana(self):
        board = json.loads((DEPLOY / "grafana.json").read_text())
        known = known_series()
        self.assertGreater(len(known), 40)
        taken = set()
        for panel in board["panels"]:
            place = panel["gridPos"]
            cells = {(x, y) for x in range(place["x"], place["x"] + place["w"])
                     for y in range(place["y"], place["y"] + place["h"])}
            self.assertFalse(cells & taken, panel["title"])
            self.assertLessEqual(place["x"] + place["w"], 24)
            taken |= cells
            self.assertEqual(len({t["refId"] for t in panel["targets"]}), len(panel["targets"]))
            for target in panel["targets"]:
                self.check_promql(target["expr"], known)
        self.assertEqual(len({p["id"] for p in board["panels"]}), len(board["panels"]))
        for variable in board["templating"]["list"]:
            if variable["type"] == "query":
                self.check_promql(variable["definition"], known)

    def test_documented_queries(self):
        section = SERVING.split("### Grafana")[1]
        queries = re.findall(r"(?m)^\| [^|]+ \| `([^`]+)` \|$", section)
        self.assertGreaterEqual(len(queries), 5)
        for query in queries:
            self.check_promql(query, known_series())

    def test_systemd_unit(self):
        unit = configparser.ConfigParser(strict=True, interpolation=None, delimiters=("=",))
        unit.optionxform = str
        unit.read_string((DEPLOY / "phidelity.service").read_text())
        self.assertEqual(unit.sections(), ["Unit", "Service", "Install"])
        service = unit["Service"]
        self.assertRegex(service["ExecStart"], r"\A/\S+/phidelity serve ")
        self.assertEqual(service["KillSignal"], "SIGTERM")

    def test_nginx(self):
        """Every statement ends with a semicolon or opens or closes a block, and blocks close."""
        depth = 0
        for line in (DEPLOY / "nginx.conf").read_text().splitlines():
            line = re.sub(r"\s+#.*|^#.*", "", line).strip()
            if line:
                self.assertRegex(line, r"\A[^;{}]+;\Z|\A[^;{}]+\{\Z|\A\}\Z")
            depth += line.count("{") - line.count("}")
            self.assertGreaterEqual(depth, 0)
        self.assertEqual(depth, 0)

    def test_yaml(self):
        """Read by libyaml, which the program itself is linked to."""
        try:
            yaml = ctypes.CDLL("libyaml-0.so.2")
        except OSError as why:
            print(f"# YAML not checked: {why}")
            return
        yaml.yaml_parser_set_input_string.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t]
        for name in ("kubernetes.yaml", "prometheus.yml"):
            text = (DEPLOY / name).read_bytes()
            parser, event = (ctypes.create_string_buffer(4096) for _ in range(2))  # more than they are
            yaml.yaml_parser_initialize(parser)
            yaml.yaml_parser_set_input_string(parser, text, len(text))
            kind, n_documents = NO_EVENT, 0
            while kind != STREAM_END:
                self.assertEqual(yaml.yaml_parser_parse(parser, event), 1, name)
                kind = ctypes.c_int.from_buffer(event).value
                n_documents += kind == DOCUMENT_START
                yaml.yaml_event_delete(event)
            yaml.yaml_parser_delete(parser)
            self.assertEqual(n_documents, text.count(b"\n---\n") + 1)

    def test_flags(self):
        known = known_flags()
        self.assertGreater(len(known), 60)
        prose = re.sub(r"(?s)<!-- flags: begin -->.*<!-- flags: end -->", "", SERVING)
        prose = re.sub(r"(?s)\n## Without a server: run-batch\n.*?(?=\n## )", "", prose)  # another command's
        self.assertNotIn("run-batch", prose)
        spans = [code for code in re.findall(r"`([^`\n]+)`", prose) if not code.startswith("numactl ")]
        used = {f for code in spans for f in re.findall(r"--([a-z][\w-]+)", code)}
        used |= set(re.findall(r"(?m)^ *- --([\w-]+)$", (DEPLOY / "kubernetes.yaml").read_text()))
        commands = re.findall(r"phidelity serve .*", SERVING + (DEPLOY / "phidelity.service").read_text())
        used |= {f for command in commands for f in re.findall(r"--([a-z][\w-]+)", command)}
        settings = re.search(r"printf '(.*)' \| sudo tee /etc/phidelity/serve\.yaml", SERVING)[1]
        used |= {line.split(":")[0] for line in settings.split(r"\n") if line}
        comments = "".join((DEPLOY / f).read_text() for f in ("phidelity.service", "nginx.conf"))
        used |= set(re.findall(r"--([a-z][\w-]+)", comments))
        self.assertGreater(len(used), 20)
        self.assertEqual(used - {"a-b", "a_b", "x", "no-x"} - known, set())

    def test_links(self):
        anchors = {re.sub(r"[^\w -]", "", h).strip().lower().replace(" ", "-")
                   for h in re.findall(r"(?m)^#+ (.*)$", SERVING)}
        links = re.findall(r"\]\(([^)]+)\)", SERVING)
        self.assertGreater(len(links), 10)
        for link in links:
            file, _, anchor = link.partition("#")
            if file:
                self.assertTrue((ROOT / "docs" / file).exists(), link)
            else:
                self.assertIn(anchor, anchors)
        guides = "".join(path.read_text() for path in (ROOT / "docs").glob("*.md"))
        for file in DEPLOY.iterdir():
            self.assertTrue(f"deploy/{file.name}" in guides, f"no document names deploy/{file.name}")


def main():
    tests = unittest.defaultTestLoader.loadTestsFromTestCase(Deploy)
    print(f"1..{tests.countTestCases()}")
    failed = 0
    for number, test in enumerate(tests, 1):
        result = test.run()
        trouble = result.failures + result.errors
        failed += bool(trouble)
        print(f"{'not ' if trouble else ''}ok {number} {test.id().split('.')[-1]}")
        for _, text in trouble:
            print("".join(f"# {line}\n" for line in text.splitlines()), end="")
    return 1 if failed else 0


sys.exit(main())
