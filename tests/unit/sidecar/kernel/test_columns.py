"""Records in columns: the kernel decides and packs them as Python does, or leaves them to Python."""

from array import array
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from index.protocol.headers import Headers
from index.protocol.schedule import Schedule
from index.rules.rules import Rules
from snapshots.segments.rows import RowPacker
from tests.support.decidable import CONTENTS, NOW_MS, PLAIN, READABLE, RULES, TIMES
from tests.support.kernel import native_kernel

native_kernel()

from sidecar.kernel import _columns  # noqa: E402 -- only where it is compiled
from sidecar.kernel.jobs import KERNEL  # noqa: E402

DUE = ("deliver-at", b"%d" % (NOW_MS + 5_000))

Records = list[tuple[bytes | None, bytes | None, Headers, int]]
Column = tuple[Any, Any, Any]


def _column(texts: Sequence[str | bytes | None], before: bytes = b"") -> Column:
    """Return the texts as a column of Arrow, where a null takes no room; ``before`` are bytes in front of a slice."""
    raw = [text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text for text in texts]
    places = array("i", accumulate((len(each or b"") for each in raw), initial=len(before)))
    is_null = bytes(each is None for each in raw)
    return places, before + b"".join(each or b"" for each in raw), is_null if any(is_null) else None


def _batch(records: Records, before: bytes = b"") -> _columns.Batch:
    headers = [header for _, _, some, _ in records for header in some]
    ends = array("q", accumulate(len(some) for _, _, some, _ in records))
    columns = ([key for key, *_ in records], [value for _, value, *_ in records])
    keys, values = (_column(each, before) for each in columns)
    names, contents = _column([name for name, _ in headers], before), _column([raw for _, raw in headers])
    return KERNEL.batch(array("q", [each[3] for each in records]), keys, values, ends, names, contents)


def _decided(
    records: Records, rules: Rules, packer: RowPacker, *, packs: bool, start: int = 0, before: bytes = b""
) -> tuple[int, list[int], list[bytes | None], list[tuple[int, bytes]]]:
    decider = KERNEL.decider(rules, packer, packs=packs)
    assert decider is not None
    dues_ms, rows, ids = array("q", [-7] * len(records)), [None] * len(records), list[tuple[int, bytes]]()
    stopped = decider.decide(_batch(records, before), start, dues_ms, rows, ids)
    return stopped, list(dues_ms), list(rows), ids


_records = st.lists(st.tuples(st.none() | st.binary(max_size=200), CONTENTS, READABLE, TIMES), max_size=6)
_of_common_form = [rules for rules in RULES if KERNEL.decider(rules, RowPacker(), packs=True) is not None]


@given(_records, st.sampled_from(_of_common_form), st.booleans(), st.sampled_from([b"", b"other"]))
def test_what_it_decides_python_decides_so(records: Records, rules: Rules, packs: bool, before: bytes) -> None:
    start = 0
    native_packer, packer = RowPacker(), RowPacker()
    while start < len(records):
        stopped, dues_ms, rows, ids = _decided(records, rules, native_packer, packs=packs, start=start, before=before)
        for number in range(start, stopped):
            key, value, headers, timestamp_ms = records[number]
            decision = rules.decide(headers, timestamp_ms)
            assert isinstance(decision, Schedule)
            assert dues_ms[number] == decision.due_ms
            assert rows[number] == (packer.pack(key, value, headers) if packs else None)
            assert [found for at, found in ids if at == number] == [decision.deliver_id] * (
                decision.deliver_id is not None
            )
        # What Python decides has a row as well, so that the table of names grows alike.
        for packs_too in (native_packer, packer) if stopped < len(records) else ():
            packs_too.pack(*records[stopped][:3])
        start = stopped + 1
    assert native_packer.names == packer.names or not packs


def test_it_takes_the_common_form() -> None:
    records: Records = [
        (b"k", b"v", [DUE, ("trace", b"")], NOW_MS),
        (None, b"", [("deliver-id", b"7"), DUE], NOW_MS),
        (b"", b"v", [("deliver-after", b"PT15M"), ("deliver-to", b"t7")], NOW_MS),
        (b"", b"v", [], NOW_MS),
    ]
    stopped, dues_ms, rows, ids = _decided(records, PLAIN, RowPacker(), packs=True)
    assert (stopped, ids) == (4, [(1, b"7")])
    assert dues_ms == [NOW_MS + 5_000, NOW_MS + 5_000, NOW_MS + 900_000, 0]
    assert None not in rows


@pytest.mark.parametrize(
    ("record", "packs"),
    [
        ((b"k", None, [DUE], NOW_MS), True),
        ((b"k", b"v", [DUE, ("trace", None)], NOW_MS), True),
        ((b"k", b"v", [("deliver-at", b"soon")], NOW_MS), False),
        ((b"k", b"v", [DUE, ("deliver-to", b"elsewhere")], NOW_MS), False),
        ((b"k", b"v", [("deliver-cancel", b"7")], NOW_MS), False),
        ((b"k", b"v", [DUE, *[("n", b"1")] * 101], NOW_MS), False),
        ((b"k", b"v", [DUE], -1), False),
    ],
)
def test_it_stops_in_front_of_what_python_decides(record: Any, packs: bool) -> None:
    common = (b"k", b"v", [DUE], NOW_MS)
    assert _decided([common, record, common], PLAIN, RowPacker(), packs=packs)[0] == 1


def test_what_is_not_packed_may_be_null() -> None:
    records: Records = [(None, None, [DUE, ("trace", None)], NOW_MS)]
    assert _decided(records, PLAIN, RowPacker(), packs=False) == (1, [NOW_MS + 5_000], [None], [])


def test_rules_that_it_does_not_know_are_pythons() -> None:
    for rules in RULES:
        if not rules.enabled or rules.at_once or rules.version < PLAIN.version:
            assert KERNEL.decider(rules, RowPacker(), packs=True) is None


_NONE: Column = (array("i", [0]), b"", None)
_ONE: Column = (array("i", [0, 1]), b"x", None)


@pytest.mark.parametrize(
    "column",
    [
        (array("i", []), b"", None),
        (array("i", [0, 2]), b"x", None),
        (array("i", [-1, 1]), b"x", None),
        (array("i", [1, 0]), b"x", None),
        (array("i", [0, 1]), b"x", b""),
        (array("i", [0, 1]), b"x", b"\0\0"),
        (array("q", [0, 1]), b"x", None),
    ],
)
def test_a_column_that_reaches_beyond_itself_is_refused(column: Column) -> None:
    with pytest.raises(ValueError, match=r"column|Buffer dtype mismatch"):
        _columns.Column(*column)


@pytest.mark.parametrize(
    ("keys", "values", "ends", "names", "contents"),
    [
        (_NONE, _ONE, [0], _NONE, _NONE),
        (_ONE, _NONE, [0], _NONE, _NONE),
        (_ONE, _ONE, [], _NONE, _NONE),
        (_ONE, _ONE, [1], _NONE, _NONE),
        (_ONE, _ONE, [-1], _ONE, _ONE),
        (_ONE, _ONE, [0], _ONE, _NONE),
    ],
)
def test_columns_that_do_not_go_together_are_refused(
    keys: Column, values: Column, ends: list[int], names: Column, contents: Column
) -> None:
    with pytest.raises(ValueError, match="of a batch"):
        KERNEL.batch(array("q", [NOW_MS]), keys, values, array("q", ends), names, contents)


def test_a_result_that_has_no_place_for_each_is_refused() -> None:
    decider = KERNEL.decider(PLAIN, RowPacker(), packs=True)
    assert decider is not None
    batch = _batch([(b"k", b"v", [DUE], NOW_MS)])
    for start, dues, rows in ((-1, 1, 1), (0, 0, 1), (0, 1, 0)):
        with pytest.raises(ValueError, match="a place for each record"):
            decider.decide(batch, start, array("q", [0] * dues), [None] * rows, [])
    assert decider.decide(batch, 5, array("q", [0]), [None], []) == 5
