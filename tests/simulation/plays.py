"""The routers of the simulation by name: the right one and the wrong ones, each with the kind of run that plays it."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Protocol

from tests.simulation import wrong
from tests.simulation.replacing import Wrong
from tests.simulation.run import Run
from tests.simulation.shared import wrong_sharing
from tests.simulation.shared.run import SharedRun


class Play(Protocol):
    """A run of one seed."""

    @property
    def trace(self) -> Sequence[str]:
        """The events, in order."""

    def play(self) -> None:
        """Play the run to its end. Raise Violation if a guarantee is broken."""


WRONG: Final[tuple[type[Wrong], ...]] = (*wrong.ALL, *wrong_sharing.ALL)

ROUTERS: Final[dict[str, Callable[[int], Play]]] = {
    "Router": Run,
    "Lanes": SharedRun,
    **{each.__name__: partial(Run, wrong=each) for each in wrong.ALL},
    **{each.__name__: partial(SharedRun, wrong=each) for each in wrong_sharing.ALL},
}
