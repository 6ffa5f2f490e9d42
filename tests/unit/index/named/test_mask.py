"""The offsets that a mask may forget."""

from index.named.mask import Mask


def masked(*offsets: int) -> Mask:
    mask = Mask()
    mask.add(offsets)
    mask.committed()
    return mask


def test_a_container_is_written_when_it_changes_and_removed_when_it_is_empty() -> None:
    mask = masked(65_535, 65_536, 200_000)
    mask.check()
    assert [(len(mask), bool(mask), mask.containers)] == [(3, True, 3)]
    assert [*mask.changes()] == []
    mask.add([65_536])
    assert [*mask.changes()] == [], "it was cancelled before"
    mask.add([131_071, 131_072])
    assert [(number, [*offsets]) for number, offsets in mask.changes()] == [(1, [65_536, 131_071]), (2, [131_072])]
    mask.spare(131_072)
    assert [number for number, _ in mask.changes()] == [1], "nothing is stored of the other, so nothing is removed"
    mask.spare(65_535)
    assert next((number, [*offsets]) for number, offsets in mask.changes()) == (0, [])
    mask.committed()
    mask.check()
    assert [*mask.settled()] == [65_536, 131_071, 200_000]


def test_offsets_are_counted_in_a_range() -> None:
    mask = masked(9, 10, 25)
    assert [mask.count(*span) for span in ((9, 10), (10, 25), (10, 26), (26, 99))] == [1, 1, 2, 0]


def test_cancelled_entries_are_left_out_of_a_run() -> None:
    run = [(5, 9, "a"), (5, 11, "b"), (6, 10, "c")]
    assert [*masked(10, 12).without(run)] == run[:2]
    assert masked(12).without(run) is run
    assert Mask().without(run) is run


def test_what_lies_in_front_of_all_buckets_and_below_s_is_forgotten() -> None:
    mask = masked(9, 10, 25)
    mask.forget([range(20, 30), range(10, 15)], needed_from=50)
    assert [offset for offset in (9, 10, 25) if offset in mask] == [10, 25]
    mask.check()


def test_what_lies_between_two_buckets_stays_since_they_may_be_merged() -> None:
    mask = masked(17)
    mask.forget([range(10, 15), range(20, 30)], needed_from=50)
    assert 17 in mask
    mask.forget([range(20, 30)], needed_from=50)
    assert 17 not in mask
    assert [(number, [*left]) for number, left in mask.changes()] == [(0, [])]


def test_an_offset_on_the_edge_of_the_needed_part_stays() -> None:
    mask = masked(19, 20)
    mask.forget([range(20, 30)], needed_from=20)
    assert (19 in mask, 20 in mask) == (False, True)
    mask = masked(20)
    mask.forget([range(20, 30)], needed_from=50)
    assert [*mask.changes()] == []


def test_without_buckets_what_is_read_again_stays() -> None:
    mask = masked(40, 60)
    mask.forget([], needed_from=50)
    assert (40 in mask, 60 in mask) == (False, True)
