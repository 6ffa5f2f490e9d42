"""The predicate of a control that cancels by query: its fields, its errors, and matches against a naive model."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from index.protocol.readers import UnitSuspectedError
from index.protocol.record import Record
from index.protocol.schedule import AT_ONCE, Schedule
from index.protocol.where import MAX_WHERE_BYTES, CancelWhere, WantedHeader, parse_where


@pytest.mark.parametrize(
    ("raw", "where"),
    [
        (b'{"target": "orders"}', CancelWhere(target="orders")),
        (b'{"due_from": 1800000000000}', CancelWhere(due_from_ms=1_800_000_000_000)),
        (
            b'{"due_from": "1800000000000", "due_to": "2027-01-15T08:00:01Z"}',
            CancelWhere("", 18 * 10**11, 1800000001000),
        ),
        (b'{"due_to": "1960-01-01T00:00:00Z"}', CancelWhere(due_to_ms=0)),
        (b'{"id_prefix": "\xc3\xa9"}', CancelWhere(id_prefix=b"\xc3\xa9")),
        (b'{"header": {"value": "", "name": "Customer"}}', CancelWhere(header=WantedHeader("Customer", b""))),
    ],
)
def test_each_field_is_read(raw: bytes, where: CancelWhere) -> None:
    assert parse_where(raw) == where


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        (b"", "it is no JSON"),
        (b"target=orders", "it is no JSON"),
        (b"\xff", "it is no UTF-8"),
        (b"[" * 4_000, "nested too deeply"),
        (b"[]", "expected a JSON object"),
        (b"null", "expected a JSON object"),
        (b"{}", "no field is given, which would cancel everything; there are target, due_from"),
        (b'{"traget": "orders"}', "traget: there is no such field; there are target, "),
        (b'{"target": "a", "target": "b"}', "target: is given more than once"),
        (b'{"target": ""}', "target: expected text that is not empty"),
        (b'{"target": null}', "target: expected text"),
        (b'{"target": ["a"]}', "target: expected text"),
        (b'{"target": "%s"}' % (b"a" * 250), "target: has 250 characters, and may have 249"),
        (b'{"due_from": true}', "due_from: expected epoch milliseconds"),
        (b'{"due_from": 1.5}', "due_from: expected epoch milliseconds"),
        (b'{"due_from": -1}', "due_from: expected epoch milliseconds"),
        (b'{"due_to": NaN}', "NaN is no number"),
        (b'{"due_to": "soon"}', "due_to: "),
        (b'{"due_to": "\\ud800"}', "due_to: holds half of a character"),
        (b'{"due_to": 99999999999999999999}', "due_to: "),
        (b'{"due_from": 1800000000}', "due_from: looks like seconds"),
        (b'{"due_from": 5, "due_to": 5}', "due_to: 5 is not after due_from, 5"),
        (b'{"id_prefix": ""}', "id_prefix: expected text that is not empty"),
        (b'{"id_prefix": "\\ud800"}', "id_prefix: holds half of a character"),
        (b'{"id_prefix": "%s"}' % ("é".encode() * 200), "id_prefix: an id has up to 256 bytes"),
        (b'{"header": "customer"}', "header: expected an object with name and value"),
        (b'{"header": {"name": "customer"}}', "header: expected an object with name and value"),
        (b'{"header": {"name": "", "value": "7"}}', "header.name: expected text that is not empty"),
        (b'{"header": {"name": "a", "value": 7}}', "header.value: expected text"),
        (b'{"header": {"name": "a", "value": "7", "x": 1}}', "header.x: there is no such field; there are name, value"),
        (b'{"target": "%s"}' % (b"a" * MAX_WHERE_BYTES), "a predicate has up to 4096 bytes, and this one has 4110"),
    ],
)
def test_errors_name_the_field(raw: bytes, problem: str) -> None:
    with pytest.raises(ValueError, match=r".") as refused:
        parse_where(raw)
    assert problem in str(refused.value)
    assert str(refused.value).isascii()


def test_a_number_in_another_unit_is_suspected() -> None:
    with pytest.raises(UnitSuspectedError):
        parse_where(b'{"due_to": 1800000000}')


_TARGETS = st.sampled_from(["a", "b", "é"])
_TIMES = st.none() | st.integers(0, 9) | st.sampled_from([10**9, 10**11, 10**14, 10**14 + 1])
_IDS = st.none() | st.sampled_from([b"", b"a", b"ab", b"b", "é".encode(), b"\xff"])
_HEADERS = st.lists(
    st.tuples(st.sampled_from(["h", "H"]), st.sampled_from([None, b"", b"1", "é".encode()])), max_size=3
)


@st.composite
def _wheres(draw: st.DrawFn) -> CancelWhere:
    start, end = draw(_TIMES), draw(_TIMES)
    if start is not None and end is not None and start >= end:
        end = start + 1
    where = CancelWhere(
        draw(st.just("") | _TARGETS),
        *(start, end),
        draw(st.none() | st.sampled_from([b"a", b"ab", "é".encode()])),
        draw(st.none() | st.builds(WantedHeader, st.sampled_from(["h", "H"]), st.sampled_from([b"", b"1"]))),
    )
    return where if any(each is not None and each != "" for each in where) else where._replace(target="a")


def _matches(plain: dict[str, Any], schedule: Schedule, record: Record) -> bool:
    """Decide by the JSON of a predicate, in the words of the contract."""
    asked_ms = schedule.due_ms - schedule.shift_ms if schedule.due_ms else max(record.timestamp_ms, 0)
    header, prefix = plain.get("header"), plain.get("id_prefix")
    has_header = header is None or (header["name"], header["value"].encode()) in record.headers
    has_id = prefix is None or (schedule.deliver_id is not None and schedule.deliver_id.startswith(prefix.encode()))
    in_time = plain.get("due_from", asked_ms) <= asked_ms < plain.get("due_to", asked_ms + 1)
    return bool(has_header and has_id and in_time and plain.get("target", schedule.targets[0]) in schedule.targets)


@given(_wheres())
def test_the_canonical_form_means_the_same(where: CancelWhere) -> None:
    assert parse_where(where.canonical()) == where
    assert parse_where(where.canonical()).canonical() == where.canonical()


@given(
    _wheres(),
    *(st.integers(0, 9), st.integers(0, 3), st.lists(_TARGETS, unique=True, min_size=1, max_size=2)),
    *(_IDS, _HEADERS, st.integers(-1, 9)),
)
def test_it_matches_as_the_contract_says(
    where: CancelWhere,
    due_ms: int,
    shift_ms: int,
    targets: list[str],
    deliver_id: bytes | None,
    headers: list[tuple[str, bytes | None]],
    timestamp_ms: int,
) -> None:
    shift_ms = min(shift_ms, due_ms - 1) if due_ms > 1 else 0
    schedule = Schedule(due_ms, tuple(targets), -1, None, deliver_id, both_times=False, shift_ms=shift_ms)
    record = Record(None, None, headers, timestamp_ms)
    plain = json.loads(where.canonical())
    plain |= {name: _bound_ms(where, name) for name in ("due_from", "due_to") if name in plain}
    wanted = _matches(plain, schedule, record)
    assert where.matches(schedule, record) == wanted
    if not where.needs_record(schedule):
        assert where.matches(schedule, None) == wanted
    if where.excludes(schedule.asked_ms if schedule.due_ms else AT_ONCE, deliver_id):
        assert not wanted


def _bound_ms(where: CancelWhere, name: str) -> int | None:
    return where.due_from_ms if name == "due_from" else where.due_to_ms
