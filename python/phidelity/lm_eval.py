"""`python -m phidelity.lm_eval ...` is the command `lm_eval ...` with one model more: --model phidelity."""
from __future__ import annotations

import sys


def main() -> None:
    """Runs lm-eval's command line."""
    try:
        from lm_eval.__main__ import cli_evaluate
    except ImportError as error:
        sys.exit(f"lm-eval cannot be imported ({error}): pip install lm_eval")
    from .eval import lm_eval_model  # noqa: F401 (registers the model)
    sys.argv[0] = "python -m phidelity.lm_eval"
    cli_evaluate()


if __name__ == "__main__":
    main()
