"""Routers with one mistake each about transactions that partitions share.

Each replaces a piece of the shipped code. Those about a single partition and its lane are in
:mod:`tests.simulation.wrong_lanes`.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

from confluent_kafka import KafkaException

from sidecar.engine.release.transaction import Outcome, Result
from sidecar.kafka.writing.lanes import Lanes
from tests.simulation.replacing import Wrong

_LANE = "sidecar.kafka.writing.lane."
_LANES = "sidecar.kafka.writing.lanes."


def _told_to_all(lane: Any, result: Result, together: Sequence[Any]) -> bool:
    lane.producer.abort_transaction()
    for each in together:
        each.result = result
    return False


class RefusesAll(Wrong):
    """Tells all partitions of a transaction of the refusal of one record, and tries none alone."""

    replaces: ClassVar = {_LANE + "Lane._has_aborted": _told_to_all}


class OutlivesUnknown(Wrong):
    """Goes on with a lane after a commit without an answer, and tries its parts again."""

    replaces: ClassVar = {_LANE + "_ENDS_LANE": frozenset({Outcome.FENCED})}


class ServesAnEndedLane(Wrong):
    """Lets partitions join a lane that has ended, and does not fence it."""

    replaces: ClassVar = {_LANE + "Lane.has_ended": False}


def _taken_and_kept(lane: Any, mine: Any) -> list[Any]:
    with lane._lock:
        return [mine, *lane._waiting]


class TakesTwice(Wrong):
    """Leaves the parts that it commits in the line for the next transaction."""

    replaces: ClassVar = {_LANE + "Lane._take": _taken_and_kept}


@contextmanager
def _leading_alone(lane: Any, mine: Any = None) -> Iterator[bool]:
    leads = lane._leads(mine)
    try:
        yield leads
    finally:
        if leads:
            lane._is_busy = False


class WakesNobody(Wrong):
    """Frees the lane after a transaction, and lets the parts wait that came in meanwhile."""

    replaces: ClassVar = {_LANE + "Lane._leading": _leading_alone}


class SparesTheEarlierOwnership(Wrong):
    """Leaves a lane of the process alone in which an earlier ownership of the same partition still writes."""

    replaces: ClassVar = {_LANES + "_has_another": lambda *_: False}


_END = Lanes.end


def _known_before_it_has_ended(lanes: Any, name: Any, *others: Any) -> None:
    begun = vars(lanes).setdefault("begun", set())
    if name not in begun:
        begun.add(name)
        _END(lanes, name, *others)


class EndedTooSoon(Wrong):
    """Takes a lane for ended while another partition of the process is still about to fence it."""

    replaces: ClassVar = {_LANES + "Lanes.end": _known_before_it_has_ended}


class GivesUpAnIdInUse(Wrong):
    """Gives up an id that it cannot fence while a thread of the process is in a commit of the former producer."""

    replaces: ClassVar = {_LANES + "_Slot.may_give_up_id": True}


class GivesUpAndReadsOn(Wrong):
    """Gives up an id, and reads a state while a transaction of that id still hides its end."""

    replaces: ClassVar = {"tests.simulation.shared.brokers.ModelledBrokers.is_settled": lambda *_: True}


def _without_a_fence(_: Any, slot: Any, producer: Any, fence: Any) -> bool:
    try:
        fence(producer)
    except KafkaException:
        if slot is not None:
            raise
    return True


class GivesUpTheIdOfAnother(Wrong):
    """Takes over without the fence of a lane of another process, if that lane cannot be fenced."""

    replaces: ClassVar = {_LANES + "Lanes._fence_or_give_up": _without_a_fence}


ALL: tuple[type[Wrong], ...] = (
    RefusesAll,
    OutlivesUnknown,
    ServesAnEndedLane,
    TakesTwice,
    WakesNobody,
    SparesTheEarlierOwnership,
    EndedTooSoon,
    GivesUpAnIdInUse,
    GivesUpAndReadsOn,
    GivesUpTheIdOfAnother,
)
