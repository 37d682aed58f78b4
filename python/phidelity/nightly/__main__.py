"""python -m phidelity.nightly: starts, checks, aligns, evaluates and measures every cell of a matrix.

    python -m phidelity.nightly matrix.yaml --output-dir nightly-report

Writes report.html, report.md and results.json, which the next run there compares with. Exit code 0: every cell
passed; 1: one failed; 2: the run could not be, as the command line, the matrix or the folder is wrong; 130: interrupted.
"""
from __future__ import annotations

import argparse
import os
import shlex
import signal
import sys

from ..__main__ import find_program
from .matrix import read_matrix
from .plan import Planner
from .report import verdict
from .results import ResultsError
from .run import Run
from .schema import MatrixError
from .work import command_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from .cells import Cell


def _parser() -> argparse.ArgumentParser:
    parts = (__doc__ or "").split("\n\n")
    p = argparse.ArgumentParser(prog="python -m phidelity.nightly", description=parts[0].partition(": ")[2],
                                epilog=parts[2], allow_abbrev=False)
    p.add_argument("matrix", metavar="MATRIX.yaml", help="which cells there are; docs/NIGHTLY.md describes it")
    p.add_argument("--output-dir", metavar="FOLDER", default="nightly-report",
                   help="of reports, results and every step's files (default: nightly-report)")
    p.add_argument("--only", metavar="PATTERN", action="append", default=[],
                   help="cells whose name holds this; * and ? as in a shell; may be given several times")
    p.add_argument("--resume", action="store_true",
                   help="keep cells that passed in the folder's last run, if their commands and the program are the same")
    p.add_argument("--dry-run", action="store_true", help="print the cells and their commands, and run nothing")
    p.add_argument("--program", metavar="FILE", help="the executable (default: this package's)")
    return p


def _print_plan(planner: Planner, cells: Sequence[Cell]) -> None:
    for model in dict.fromkeys(cell.model for cell in cells):
        step = planner.making_reference(model)
        if step:
            print(f"reference of {model.name}\n  {command_line(step.argv)}")
    for cell in cells:
        print(cell.name)
        for step in planner.steps(cell):
            print(f"  {step.name + ':':9}{command_line(step.argv) or step.why_not}")


def _complain(error: object, code: int = 2) -> int:
    print(f"phidelity.nightly: {error}", file=sys.stderr)
    return code


def main(argv: Sequence[str] | None = None) -> int:
    """The exit code."""
    words = sys.argv[1:] if argv is None else list(argv)
    args = _parser().parse_args(words)
    try:
        matrix = read_matrix(args.matrix)
    except (OSError, MatrixError) as error:
        return _complain(error)
    cells = [cell for cell in matrix.cells if not args.only or any(cell.matches(p) for p in args.only)]
    if not cells:
        return _complain(f"--only: no cell is named so; there are {', '.join(cell.name for cell in matrix.cells)}")
    try:
        program = os.path.abspath(args.program) if args.program else find_program()
        if args.dry_run:
            _print_plan(Planner(matrix, program, args.output_dir), cells)
            return 0
        command = shlex.join(["python", "-m", "phidelity.nightly", *words])
        run = Run(matrix, cells, program, args.output_dir, command, args.resume)
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # commands under way are ended, the report is written
        results = run.run()
    except (OSError, ResultsError) as error:
        return _complain(error)
    except KeyboardInterrupt:
        return _complain(f"interrupted; what was found is in {args.output_dir}, and --resume goes on", 130)
    print(f"{'FAIL' if results.n_failed() else 'PASS'}: {verdict(results, None)}\n"
          f"{os.path.join(args.output_dir, 'report.html')}")
    return 1 if results.n_failed() else 0


if __name__ == "__main__":
    sys.exit(main())
