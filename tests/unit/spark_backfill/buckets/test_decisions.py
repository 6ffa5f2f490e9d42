"""A job decides as the router does, of names too that neither reads as they came: spark_backfill.buckets.deciding."""

import pytest

from index.headers import Headers
from index.rules import Rules
from index.schedule import AT_ONCE
from index.unreadable import KNOWS_UNREADABLE, MAX_HEADERS
from spark_backfill.buckets.deciding import ControlFoundError, decide

NOW_MS = 1_800_000_000_000
DUE = ("deliver-at", b"%d" % (NOW_MS + 60_000))

RECORDS: list[Headers] = [
    [DUE, ("trace\0id", b"1")],
    # What Java makes of a name that is no UTF-8.
    [DUE, ("trace\N{REPLACEMENT CHARACTER}", None)],
    [DUE, ("größe", b"1"), ("", None)],
    [DUE, *[("n", None)] * MAX_HEADERS],
    [DUE, *[("n", None)] * (MAX_HEADERS - 1)],
    [("deliver-at", b"soon")],
]


@pytest.mark.parametrize(
    ("version", "rejected"), [(KNOWS_UNREADABLE, [0, 1, 3, 5]), (KNOWS_UNREADABLE - 1, [5])], ids=["now", "before"]
)
def test_what_is_not_read_as_it_came_is_left_to_the_router(version: int, rejected: list[int]) -> None:
    rules = Rules(topic="d", default_target="t", version=version)
    dues_ms, found, _ = decide(RECORDS, [NOW_MS] * len(RECORDS), range(len(RECORDS)), rules)
    assert found == rejected
    assert dues_ms == [AT_ONCE if number in rejected else NOW_MS + 60_000 for number in range(len(RECORDS))]


def test_what_cancels_or_replaces_is_found_and_not_indexed() -> None:
    schedule = [("deliver-id", b"a"), ("deliver-at", b"1800000000000")]
    for control in ([("deliver-cancel", b"a")], [*schedule, ("Deliver-Replace", b"true")]):
        with pytest.raises(ControlFoundError) as found:
            decide(
                [schedule, [("deliver-cancel", None)], control],
                [NOW_MS] * 3,
                range(3),
                Rules("d", default_target="out"),
            )
        assert found.value.number == 2


def test_who_has_an_id_is_told_of_what_is_accepted() -> None:
    refused: Headers = [("deliver-id", b"a"), ("deliver-at", b"soon")]
    records: list[Headers] = [[DUE], [DUE, ("deliver-id", b"a")], refused, [DUE, ("Deliver-Id", b"b")]]
    dues_ms, rejected, named = decide(records, [NOW_MS] * 4, range(4), Rules("d", default_target="out"))
    assert (len(dues_ms), rejected, named) == (4, [2], [(1, b"a"), (3, b"b")])
