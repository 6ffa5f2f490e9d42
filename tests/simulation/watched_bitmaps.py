"""Plays N seeds, in which no loop may run over an empty bitmap: ``python -m tests.simulation.watched_bitmaps N``.

Each such loop leaks 224 bytes in pyroaring 1.2.0: ``AbstractBitMap64.__iter__`` returns before it frees its iterator.
The router plans a thousand transactions a second, so a loop in each would leak 800 MB an hour.
"""

import sys
from collections.abc import Iterator
from typing import Any

import pyroaring

from tests.support.paths import ROOT

SHIPPED = tuple(f"{ROOT / package}/" for package in ("index", "snapshots", "sidecar"))


def watched(kind: Any) -> Any:
    """Return a class like a bitmap, which fails in a loop of the shipped code over an empty one."""

    class Watched(kind):  # type: ignore[misc] # the base is an argument
        def __len__(self) -> int:
            return int(super().__len__())

        def __iter__(self) -> Iterator[int]:
            caller = sys._getframe(1).f_code
            if not len(self) and caller.co_filename.startswith(SHIPPED):
                raise AssertionError(f"{caller.co_filename}: {caller.co_qualname} loops over an empty bitmap")
            return iter(super().__iter__())

    return Watched


def main() -> None:
    """Play the seeds."""
    for name in ("BitMap64", "FrozenBitMap64"):
        setattr(pyroaring, name, watched(getattr(pyroaring, name)))
    from tests.simulation.run import Run  # noqa: PLC0415 - the shipped code takes the classes as it is imported

    for seed in range(int(sys.argv[1])):
        Run(seed).play()


if __name__ == "__main__":
    main()
