"""Ways of healing that are wrong in one thing each, which the simulation of forgetful brokers has to break."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import Any

from index.orphans import Outcome
from index.record import Record
from sidecar.healing.healing import Healing
from sidecar.healing.hidden import Ends
from sidecar.healing.short_transactions import TOUCH_KEY
from sidecar.kafka.admin import Place
from snapshots.owed import Owed
from snapshots.state import StoredState
from tests.simulation.forgetful import DELAY


class CommitsAborted(Healing):
    """Takes what was aborted on a target for committed."""

    def _outcome(self, *args: Any) -> Outcome:
        outcome = super()._outcome(*args)
        return Outcome.COMMITTED if outcome is Outcome.ABORTED else outcome


class AbortsCommitted(Healing):
    """Takes what was committed on a target for aborted."""

    def _outcome(self, *args: Any) -> Outcome:
        outcome = super()._outcome(*args)
        return Outcome.ABORTED if outcome is Outcome.COMMITTED else outcome


class HealsStateOnly(Healing):
    """Ends what is open on the state, and not what is open on targets."""

    def heal_targets(self, origin: Any) -> bool:
        return False


class AbortsStateWithoutEvidence(Healing):
    """Ends what is open on the state as aborted, whatever became of it."""

    def _heal_state(self, ends: Ends) -> None:
        evidence: Any = self._evidence
        evidence.of_state = lambda *_: (Outcome.ABORTED, "")
        super()._heal_state(ends)


class CommitsStateWithoutEvidence(Healing):
    """Ends what is open on the state as committed, whatever became of it."""

    def _heal_state(self, ends: Ends) -> None:
        evidence: Any = self._evidence
        evidence.of_state = lambda *_: (Outcome.COMMITTED, "")
        super()._heal_state(ends)


class ForgetsOwed(Healing):
    """Removes the copies of what was committed, and does not write them again."""

    def pay(self, owed: Collection[Owed], stored: StoredState | None) -> None:
        super().pay([each._replace(after_number=-2) for each in owed], stored)


class PaysBeforeEnding(Healing):
    """Writes again what is owed while the transaction that hides it is still open."""

    def _end_on_targets(self, copied: dict[Place, int]) -> None:
        pass


class TrustsTheAnswer(Healing):
    """Takes what it has aborted on targets for ended there, whether they have had the same leader meanwhile or not."""

    def _end_on_targets(self, copied: dict[Place, int]) -> None:
        if copied:
            self._main.end_as_aborted(copied)


class CopiesByItself(Healing):
    """Copies what the state hides with the producer whose marker ends it."""

    def _by_second(self) -> Any:
        return self._main


class CommitsStateByTouching(Healing):
    """Ends what was committed on the state by committing something else, which may be aborted half way."""

    def _by_second(self) -> Any:
        return _Touching(self)

    def _end_on_state(self) -> None:
        if self._state in self._open([self._state], 0):
            super()._end_on_state()


class ForgetsSecond(Healing):
    """Does not end what was only written to heal, where a broker has lost the end of that."""

    def _end_of_second(self, places: list[Place]) -> None:
        """Nothing."""


class LeavesItselfOut(Healing):
    """Does not look for what it has appended to its own delay partition."""

    def _open(self, places: Iterable[Place], within_s: float) -> dict[Place, Ends]:
        return super()._open([place for place in places if place != DELAY], within_s)


class TakesWhatIsPassedOn(Healing):
    """Takes what others write to the delay partition for what it has appended, by one header."""

    def heal_targets(self, origin: Any) -> bool:
        evidence: Any = self._evidence
        evidence._is_appended = lambda *_: True
        return super().heal_targets(origin)


class NotesWhereItLay(Healing):
    """Writes again what it has appended, and leaves the notes where it lies as they were."""

    def pay(self, owed: Collection[Owed], stored: StoredState | None) -> None:
        super().pay(owed, None if stored is None else replace(stored, transit={}))


@dataclass
class _Touching:
    healing: Healing

    def write(self, _: Any) -> None:
        self.healing._main.write([(self.healing._state, Record(TOUCH_KEY, None, (), 0))])

    def standing_in(self, places: Collection[Place]) -> Any:
        return Healing._by_second(self.healing).standing_in(places)

    def end_as_aborted(self, places: Collection[Place]) -> None:
        Healing._by_second(self.healing).end_as_aborted(places)


WRONG: tuple[type[Healing], ...] = (
    CommitsAborted,
    AbortsCommitted,
    HealsStateOnly,
    AbortsStateWithoutEvidence,
    CommitsStateWithoutEvidence,
    ForgetsOwed,
    PaysBeforeEnding,
    TrustsTheAnswer,
    CopiesByItself,
    CommitsStateByTouching,
    ForgetsSecond,
    LeavesItselfOut,
    TakesWhatIsPassedOn,
    NotesWhereItLay,
)
