"""Wrong routers: names of the shipped code, each replaced by an override with one mistake."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, ClassVar
from unittest.mock import patch

from sidecar import failpoints
from tests.simulation.world import Faults

OWNED = "sidecar.engine.ownership.owned_partition."
"""The module that puts an owned partition together."""

SERVING = "sidecar.engine.ownership.serving."
"""The module that decides when a partition is taken over."""


class Wrong:
    """A mistake that looks reasonable to its author. The checker must find it from outside, without help from
    assertions.
    """

    replaces: ClassVar[Mapping[str, object]]
    limits: ClassVar[Mapping[str, Any]] = {}


OF_HOST = frozenset({"recovery.fenced", "recovery.noted", "recovery.replayed"})
"""Failpoints for which the simulation has points of its own: after the fence, after the commit of the note, and before
the next read."""

RARE_PLACES = ("adopt.", "merge.", "seal.")
TIMES = {"merge.after_manifest": 6}
"""Few merges of a run are completed, so each completed merge tries its failpoint several times."""


@contextmanager
def playing(faults: Faults, wrong: type[Wrong] | None) -> Iterator[None]:
    """Let the router die at each of its failpoints, and replace the names of ``wrong`` if one is given."""

    def passing(name: str) -> None:
        for _ in range(0 if name in OF_HOST else TIMES.get(name, 1)):
            faults.point(name, rare=name.startswith(RARE_PLACES))

    with patch.object(failpoints, "passing", passing), replaced(wrong):
        yield


@contextmanager
def replaced(wrong: type[Wrong] | None) -> Iterator[None]:
    """Replace the names of ``wrong`` if one is given."""
    with ExitStack() as stack:
        for name, value in ({} if wrong is None else wrong.replaces).items():
            stack.enter_context(patch(name, value))
        yield
