"""The offsets that a mask may forget."""

from index.named.mask import Mask


def masked(*offsets: int) -> Mask:
    mask = Mask()
    mask.add(offsets)
    mask.committed()
    return mask


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


def test_without_buckets_what_is_read_again_stays() -> None:
    mask = masked(40, 60)
    mask.forget([], needed_from=50)
    assert (40 in mask, 60 in mask) == (False, True)
