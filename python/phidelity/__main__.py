"""`python -m phidelity ...` is the program `phidelity ...`."""
from __future__ import annotations

import os
import sys


def find_program() -> str:
    """The program that was built with this package: beside the package in the build folder, else where
    pip put it. Raises FileNotFoundError."""
    package = os.path.dirname(os.path.abspath(__file__))
    built = os.path.join(package, os.pardir, os.pardir, "phidelity")
    if os.path.isfile(built):
        return os.path.normpath(built)
    from importlib.metadata import PackageNotFoundError, distribution
    try:
        for file in distribution("phidelity").files or ():
            if file.name == "phidelity" and file.parent.name == "bin":
                return os.path.normpath(file.locate())
    except PackageNotFoundError:
        pass
    raise FileNotFoundError("the program phidelity was not installed with this package")


def main() -> None:
    """Becomes the program."""
    program = find_program()
    os.execv(program, ["phidelity", *sys.argv[1:]])


if __name__ == "__main__":
    main()
