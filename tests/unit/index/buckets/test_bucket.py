"""Bucket: how far it is loaded, and where the watermark must stop because of that."""

import pytest

from index.pending.progress import BEFORE_ALL, Position
from tests.support.manifests import Place, bucket, manifest

FIRST, SECOND, THIRD = [(10, 5), (20, 3)], [(20, 4), (30, 1)], [(30, 2)]


def test_what_a_manifest_tells_of_its_segments() -> None:
    told = manifest(7, FIRST, SECOND, THIRD)
    assert (told.entries, told.last) == (5, Position(30, 2))


@pytest.mark.parametrize(
    ("loaded_to", "next_segment", "barrier", "stored"),
    [
        (BEFORE_ALL, 0, (10, 5), 5),
        ((10, 4), 0, (10, 5), 5),
        ((10, 5), 0, (10, 6), 5),
        ((15, 0), 0, (15, 1), 5),
        ((20, 3), 1, (20, 4), 3),
        ((20, 4), 1, (20, 5), 3),
        ((30, 1), 2, (30, 2), 1),
        ((30, 2), None, None, 0),
        ((99, 0), None, None, 0),
    ],
)
def test_the_watermark_must_not_reach_what_is_not_loaded(
    loaded_to: Place, next_segment: int | None, barrier: Place | None, stored: int
) -> None:
    one = bucket(7, FIRST, SECOND, THIRD, loaded_to=loaded_to)
    assert (one.next_segment, one.barrier, one.stored) == (next_segment, barrier, stored)
    one.check()


def test_segments_are_loaded_one_after_the_other() -> None:
    one = bucket(7, FIRST, SECOND, THIRD)
    with pytest.raises(ValueError, match="segment 1 of bucket 7 loaded before 0"):
        one.loaded(1)
    for number, barrier in enumerate([(20, 4), (30, 2), None]):
        one.loaded(number)
        one.check()
        assert one.barrier == barrier
    with pytest.raises(ValueError, match="segment 2 of bucket 7 loaded before None"):
        one.loaded(2)
    assert one.stored == 0


@pytest.mark.parametrize(
    ("watermark", "passed", "done"),
    [((20, 2), 0, False), ((20, 3), 1, False), ((30, 1), 2, False), ((30, 2), 3, True), ((31, 0), 3, True)],
)
def test_what_the_watermark_has_passed(watermark: Place, passed: int, done: bool) -> None:
    one = bucket(7, FIRST, SECOND, THIRD)
    assert one.passed(Position(*watermark)) == passed
    assert one.is_done(Position(*watermark)) is done


def test_passed_remembers() -> None:
    one = bucket(7, FIRST, SECOND, THIRD)
    assert [one.passed(Position(*each)) for each in [(5, 0), (20, 3), (20, 3), (30, 2)]] == [0, 1, 1, 3]


@pytest.mark.parametrize("segments", [([(10, 5)], [(10, 5)]), ([(20, 5), (10, 4)],), (THIRD, FIRST)])
def test_check_finds_segments_out_of_order(segments: tuple[list[Place], ...]) -> None:
    one = bucket(7, *segments)
    with pytest.raises(AssertionError):
        one.check()


def test_check_finds_a_wrong_count() -> None:
    one = bucket(7, FIRST, SECOND)
    one.stored += 1
    with pytest.raises(AssertionError):
        one.check()
