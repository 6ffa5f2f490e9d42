"""Garbage collection: seldom, little at a time, and everything in the end."""

import gc
import weakref
from collections.abc import Iterator

import pytest

from sidecar.process.garbage import ANYWAY_EVERY_S, FEW_OBJECTS, QUIET_BYTES, QUIET_EVERY_S, GarbageCollection
from tests.support.hand_clock import HandClock


class Node:
    """One end of a cycle."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def collection_as_it_was() -> Iterator[None]:
    yield
    gc.unfreeze()
    gc.enable()


def dead_cycle() -> "weakref.ref[Node]":
    return weakref.ref(Node())


def test_a_cycle_is_collected_when_it_is_time_and_little_is_in_memory() -> None:
    clock, used_bytes = HandClock(), [QUIET_BYTES]
    garbage = GarbageCollection(lambda: used_bytes[0], clock.running_s)
    cycle = dead_cycle()
    garbage.collect_if_quiet()
    clock.go_on(QUIET_EVERY_S)
    garbage.collect_if_quiet()
    assert cycle() is not None
    used_bytes[0] -= 1
    garbage.collect_if_quiet()
    assert cycle() is None


def test_much_is_set_aside_without_a_look_until_all_is_walked() -> None:
    clock = HandClock()
    garbage = GarbageCollection(lambda: 0, clock.running_s)
    cycle = dead_cycle()
    held = [[number] for number in range(2 * FEW_OBJECTS)]
    set_aside = gc.get_freeze_count()
    clock.go_on(QUIET_EVERY_S)
    garbage.collect_if_quiet()
    assert cycle() is not None
    assert gc.get_freeze_count() >= set_aside + len(held)
    clock.go_on(ANYWAY_EVERY_S)
    garbage.collect_if_quiet()
    assert cycle() is None


def test_what_was_seen_once_is_not_walked_again() -> None:
    clock = HandClock()
    held = [[number] for number in range(2 * FEW_OBJECTS)]
    garbage = GarbageCollection(lambda: 0, clock.running_s)
    assert len(gc.get_objects()) < len(held)
    clock.go_on(QUIET_EVERY_S)
    garbage.collect_if_quiet()
    assert len(gc.get_objects()) < len(held)
    assert not gc.isenabled()
