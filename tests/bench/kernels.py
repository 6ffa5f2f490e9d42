"""Runs a benchmark with native code and in pure Python in one round."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

from sidecar.kernel.choice import Kernel
from sidecar.kernel.compiled import SWITCH
from tests.bench.results import Row

DEPENDS_ON_IT: Final = frozenset({"burst", "cores", "catch-up", "overdue", "scattered", "index"})
"""Benchmarks whose cost is the work per record; in the others brokers or waits decide."""


def beside(name: str, measure: Callable[[], list[Row]]) -> list[Row]:
    """Return the rows of one benchmark with the kernel, then the rows in pure Python if they differ.

    Goals apply to the rows with the kernel only.
    """
    rows = measure()
    if name not in DEPENDS_ON_IT or Kernel.chosen(os.environ).why_not:
        return rows
    with _switched_off():
        return rows + [replace(row, benchmark=f"{row.benchmark}, Python", goal=None) for row in measure()]


@contextmanager
def _switched_off() -> Iterator[None]:
    before = os.environ.get(SWITCH)
    # The routers of a benchmark are separate processes and read the switch from the environment.
    os.environ[SWITCH] = "off"
    try:
        yield
    finally:
        if before is None:
            del os.environ[SWITCH]
        else:
            os.environ[SWITCH] = before
