"""The bar "Processed prompts": tqdm's when it is installed, else a small one that looks the same."""
from __future__ import annotations

import sys
from time import monotonic

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

WIDTH, EIGHTHS = 10, " ▏▎▍▌▋▊▉"
INTERVAL_S = 0.1


class NoBar:
    """Shows nothing. Bars count answers, and a prompt once for each of its answers, as vLLM's do."""

    def advance(self, n_answers: int, n_input: int, n_output: int) -> None:
        pass

    def close(self) -> None:
        pass


class _Speed:
    """The tokens so far, as vLLM writes them behind its bar."""

    def __init__(self) -> None:
        self.start_s = monotonic()
        self.n_input = self.n_output = 0

    def add(self, n_input: int, n_output: int) -> str:
        self.n_input += n_input
        self.n_output += n_output
        elapsed_s = max(monotonic() - self.start_s, 1e-9)
        return (f"est. speed input: {self.n_input / elapsed_s:.2f} toks/s, "
                f"output: {self.n_output / elapsed_s:.2f} toks/s")


class TqdmBar:
    """A bar of tqdm's, or of a callable with its arguments."""

    def __init__(self, make: Callable[..., Any], total: int) -> None:
        self.speed = _Speed()
        self.bar = make(total=total, desc="Processed prompts", dynamic_ncols=True,
                        postfix="est. speed input: 0.00 toks/s, output: 0.00 toks/s")

    def advance(self, n_answers: int, n_input: int, n_output: int) -> None:
        self.bar.postfix = self.speed.add(n_answers * n_input, n_output)
        self.bar.update(n_answers)

    def close(self) -> None:
        self.bar.close()


def _clock(seconds: float) -> str:
    minutes, s = divmod(int(seconds), 60)
    hours, m = divmod(minutes, 60)
    return f"{hours}:{m:02d}:{s:02d}" if hours else f"{m:02d}:{s:02d}"


class PlainBar:
    """Written to standard error, a few times a second at most."""

    def __init__(self, total: int) -> None:
        self.total, self.done = total, 0
        self.speed = _Speed()
        self.postfix = self.speed.add(0, 0)
        self.shown_s = float("-inf")
        self.n_shown = 0
        self._show()

    def _line(self) -> str:
        elapsed_s = monotonic() - self.speed.start_s
        share = self.done / self.total
        full, part = divmod(int(share * WIDTH * 8), 8)
        bar = ("█" * full + (EIGHTHS[part] if full < WIDTH else "")).ljust(WIDTH)
        rate = self.done / elapsed_s if self.done and elapsed_s > 0 else 0
        left = _clock((self.total - self.done) / rate) if rate else "?"
        shown = f"{1 / rate:.2f}s/it" if 0 < rate < 1 else f"{rate:.2f}it/s" if rate else "?it/s"
        return (f"Processed prompts: {share:4.0%}|{bar}| {self.done}/{self.total} "
                f"[{_clock(elapsed_s)}<{left}, {shown}, {self.postfix}]")

    def _show(self) -> None:
        self.shown_s = monotonic()
        line = self._line()
        if sys.stderr is not None:
            sys.stderr.write("\r" + line.ljust(self.n_shown))
            sys.stderr.flush()
        self.n_shown = len(line)

    def advance(self, n_answers: int, n_input: int, n_output: int) -> None:
        self.done += n_answers
        self.postfix = self.speed.add(n_answers * n_input, n_output)
        if monotonic() - self.shown_s >= INTERVAL_S:
            self._show()

    def close(self) -> None:
        self._show()
        if sys.stderr is not None:
            sys.stderr.write("\n")


def make_bar(use_tqdm: bool | Callable[..., Any], total: int) -> NoBar | TqdmBar | PlainBar:
    """use_tqdm: as of LLM.generate; a callable is called as tqdm.tqdm is."""
    if not use_tqdm:
        return NoBar()
    if callable(use_tqdm):
        return TqdmBar(use_tqdm, total)
    try:
        from tqdm import tqdm
    except ImportError:
        return PlainBar(total)
    return TqdmBar(tqdm, total)
