"""Both kernels side by side: the same benchmark with native code, and in Python alone, in one round."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

from sidecar.kernel.choice import SWITCH, Kernel
from tests.bench.results import Row

DEPENDS_ON_IT: Final = frozenset({"burst", "cores", "catch-up", "overdue", "scattered", "index"})
"""Benchmarks of work whose cost is that of each record; in the others brokers or waits decide."""


def beside(name: str, measure: Callable[[], list[Row]]) -> list[Row]:
    """Rows of one benchmark as the routers run, and below them those in Python where that is something else.

    The goals are those of the first; in Python the figures stand beside them.
    """
    rows = measure()
    if name not in DEPENDS_ON_IT or Kernel.chosen(os.environ).why_not:
        return rows
    with _switched_off():
        return rows + [replace(row, benchmark=f"{row.benchmark}, Python", goal=None) for row in measure()]


@contextmanager
def _switched_off() -> Iterator[None]:
    before = os.environ.get(SWITCH)
    # The routers of a benchmark are processes of their own, and take it from here.
    os.environ[SWITCH] = "off"
    try:
        yield
    finally:
        if before is None:
            del os.environ[SWITCH]
        else:
            os.environ[SWITCH] = before
