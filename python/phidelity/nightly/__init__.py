"""Models x dtypes x quantisations x contexts: every cell started, checked, aligned, evaluated and measured.

    python -m phidelity.nightly matrix.yaml

A cell that fails, crashes or hangs is a line of the report and stops nothing else. In reading order: matrix.py
(the file), cells.py (what a cell is), plan.py (its commands), process.py and work.py (running them),
figures.py (the numbers), results.py (results.json), compare.py (since the last run), report.py (what is
told, as blocks of document.py), markdown.py and page.py (how it is written down).
"""
