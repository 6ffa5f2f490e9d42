"""What a wrong router is: names of the shipped code, each replaced by an override with one thing wrong."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, ClassVar
from unittest.mock import patch

from sidecar import failpoints
from tests.simulation.world import Faults

OWNED = "sidecar.partition.owned_partition."
"""Where an owned partition is put together."""


class Wrong:
    """A mistake that looks reasonable while it is made; caught from outside, not by assertions of what it overrides."""

    replaces: ClassVar[Mapping[str, object]]
    limits: ClassVar[Mapping[str, Any]] = {}


RARE_PLACES = ("adopt.", "merge.", "seal.")
TIMES = {"merge.after_manifest": 6}
"""Few merges of a run come to their end, so that each has to be worth it."""


@contextmanager
def playing(faults: Faults, wrong: type[Wrong] | None) -> Iterator[None]:
    """Let the router die at each of its failpoints, and be wrong where a run wants it."""

    def passing(name: str) -> None:
        for _ in range(TIMES.get(name, 1)):
            faults.point(name, rare=name.startswith(RARE_PLACES))

    with ExitStack() as stack:
        stack.enter_context(patch.object(failpoints, "passing", passing))
        for name, value in ({} if wrong is None else wrong.replaces).items():
            stack.enter_context(patch(name, value))
        yield
