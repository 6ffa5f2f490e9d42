"""The producer helper: the router's rules decide its headers as the caller asked, and the module stands alone."""

import ast
import subprocess
import sys
from datetime import UTC, datetime, timedelta, timezone
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from index.protocol.occurrences import check_cron
from index.protocol.readers import MAX_ID_BYTES, MAX_PARTITION
from index.protocol.schedule import NO_EXPIRY, Action, Control, Decision, Rejection, schedule_of
from index.protocol.times import INT64_MAX
from index.protocol.where import WantedHeader, parse_where
from index.rules.rules import AT_ONCE, BY_KEY, Reason, Rules, Schedule
from index.rules.rules import KEEP_KEY as RULES_KEEP_KEY
from sidecar import producing
from sidecar.producing import KEEP_KEY, MaxDelayExceeded, cancel, cancel_where, deliver, move
from tests.support.imports import imports_of

MODULE = Path(producing.__file__)
NOW_MS = 1_767_268_800_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DAY_MS = 86_400_000


def rules(max_delay_ms: int = 0) -> Rules:
    return Rules(topic="orders.delay", default_target="orders", allowed_targets=("*",), max_delay_ms=max_delay_ms)


def decided(headers: producing.Headers, max_delay_ms: int = 0) -> Decision:
    return rules(max_delay_ms).decide(as_bytes(headers), NOW_MS)


def as_bytes(headers: producing.Headers) -> list[tuple[str, bytes | None]]:
    assert not any(isinstance(value, str) for _, value in headers), "text is another record than bytes to a test"
    return [(name, raw(value)) for name, value in headers]


def exact_ms(moment: datetime) -> Fraction:
    return Fraction((moment - EPOCH) // timedelta(microseconds=1), 1000)


topics = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,30}", fullmatch=True).filter(lambda name: name != "orders.delay")
zones = st.integers(-23 * 60, 23 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
YEAR_2, YEAR_9998 = (datetime(year, 1, 1) for year in (2, 9998))  # noqa: DTZ001 - hypothesis adds the zone
moments = st.datetimes(min_value=YEAR_2, max_value=YEAR_9998, timezones=zones)
plain_ms = st.integers(0, 10**9 - 1) | st.integers(10**11, 10**14 - 1)
lengths = st.timedeltas(timedelta(0), timedelta(days=100_000))
options: Any = st.fixed_dictionaries(
    {},
    optional={
        "to": topics | st.lists(topics, unique=True, max_size=4),
        "key": st.none() | st.binary(max_size=9) | st.text(max_size=9),
        "partition": st.integers(0, MAX_PARTITION),
        "expire_after": st.integers(0, INT64_MAX) | lengths,
        "deliver_id": st.binary(max_size=MAX_ID_BYTES) | st.text(max_size=MAX_ID_BYTES // 4),
    },
)


def _length_ms(length: timedelta | int) -> int:
    return length if isinstance(length, int) else -(-length // timedelta(milliseconds=1))


def raw(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


@given(options)
def test_everything_but_the_time_is_decided_as_asked_for(asked: dict[str, Any]) -> None:
    to = asked.get("to", [])
    found = decided(deliver(**asked))
    assert found == Schedule(
        due_ms=AT_ONCE,
        targets=tuple([to] if isinstance(to, str) else to) or ("orders",),
        partition=asked.get("partition", BY_KEY),
        key=raw(asked["key"]) if "key" in asked else RULES_KEEP_KEY,
        deliver_id=raw(asked.get("deliver_id")),
        both_times=False,
        expire_after_ms=_length_ms(asked["expire_after"]) if "expire_after" in asked else NO_EXPIRY,
    )


@given(moments)
def test_a_datetime_is_due_at_the_first_millisecond_that_is_not_early(moment: datetime) -> None:
    found = decided(deliver(at=moment))
    assert isinstance(found, Schedule), found
    assert 0 <= found.due_ms - max(exact_ms(moment), Fraction(0)) < 1


@given(moments, st.integers(0, 9))
def test_rfc_3339_text_is_due_as_the_router_reads_it(moment: datetime, digits: int) -> None:
    fraction = f".{moment.microsecond:06d}000"[: digits + 1] if digits else ""
    offset = moment.strftime("%z")
    text = f"{moment:%Y}".rjust(4, "0") + f"{moment:-%m-%dT%H:%M:%S}{fraction}{offset[:3]}:{offset[3:]}"
    found = decided(deliver(at=text))
    assert found == decided([("deliver-at", text.encode())])
    assert isinstance(found, Schedule), found


@pytest.mark.parametrize(
    "text",
    [
        "2016-12-31T23:59:60.5Z",
        "2030-01-31t08:00:00.000000001z",
        "0001-01-01T00:00:00+23:59",
        "9999-12-31T23:59:59.999999999-23:59",
        "1971-06-01T00:00:00Z",
    ],
)
def test_instants_at_the_edges_are_due_as_the_router_reads_them(text: str) -> None:
    found = decided(deliver(at=text))
    assert isinstance(found, Schedule), found
    assert found == decided([("deliver-at", text.encode())])


@given(plain_ms)
def test_a_number_is_epoch_milliseconds(due_ms: int) -> None:
    found = decided(deliver(at=due_ms))
    assert isinstance(found, Schedule), found
    assert found.due_ms == due_ms


@given(lengths | st.integers(0, INT64_MAX - NOW_MS))
def test_a_length_counts_from_the_record_and_is_rounded_up(length: timedelta | int) -> None:
    found = decided(deliver(after=length, now_ms=NOW_MS))
    assert isinstance(found, Schedule), found
    exact = length if isinstance(length, int) else Fraction(length // timedelta(microseconds=1), 1000)
    assert 0 <= found.due_ms - NOW_MS - exact < 1


written_lengths = st.from_regex(
    r"[0-9]{1,12}(ms|s|m|h|d|)|P([0-9]{1,4}W)?([0-9]{1,4}D)?(T([0-9]{1,4}H)?([0-9]{1,4}M)?([0-9]{1,4}([.,][0-9]{1,9})?S)?)?",
    fullmatch=True,
)


@given(written_lengths)
def test_a_length_in_words_is_read_as_the_router_reads_it(text: str) -> None:
    expected = decided([("deliver-after", text.encode())])
    if isinstance(expected, Schedule):
        assert decided(deliver(after=text, now_ms=NOW_MS)) == expected
    else:
        with pytest.raises(ValueError, match=r"^after: "):
            deliver(after=text, now_ms=NOW_MS)


@given(moments | plain_ms | lengths, st.integers(1, 10**14) | lengths)
def test_the_maximum_delay_is_judged_as_by_the_router(when: Any, limit: int | timedelta) -> None:
    limit_ms = limit if isinstance(limit, int) else -(-limit // timedelta(milliseconds=1))
    assume(limit_ms > 0)
    asked: dict[str, Any] = {"after" if isinstance(when, timedelta) else "at": when}
    found = decided(deliver(**asked), limit_ms)
    if isinstance(found, Schedule):
        assert decided(deliver(**asked, max_delay=limit, now_ms=NOW_MS)) == found
    else:
        assert isinstance(found, Rejection)
        assert found.reason is Reason.MAX_DELAY_EXCEEDED
        with pytest.raises(MaxDelayExceeded, match=f"^{found.message}$"):
            deliver(**asked, max_delay=limit, now_ms=NOW_MS)


def test_a_delay_over_the_maximum_says_what_the_router_says() -> None:
    with pytest.raises(MaxDelayExceeded, match=r"^Exceeds max allowed delivery delay of 604800000 milliseconds$"):
        deliver(at=datetime.now(UTC) + timedelta(days=8), max_delay=timedelta(days=7))
    assert deliver(after=7 * DAY_MS, max_delay=timedelta(days=7)) == [("deliver-after", b"604800000")]
    assert deliver(after=700 * DAY_MS, max_delay=0) == [("deliver-after", b"60480000000")]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"at": datetime(2030, 1, 1)}, "has no time zone"),  # noqa: DTZ001 - the mistake under test
        ({"at": "2030-01-01T00:00:00"}, "is not RFC 3339 with an offset"),
        ({"at": "2030-02-30T00:00:00Z"}, "at: '2030-02-30"),
        ({"at": 1_900_000_000}, "looks like seconds"),
        ({"at": 1_900_000_000_000_000}, "looks like microseconds"),
        ({"at": datetime(9999, 12, 31, 23, 59, tzinfo=timezone(-timedelta(hours=9)))}, "the last instant"),
        ({"at": -1}, "is not within 0"),
        ({"at": 1.5}, "whole number, not 1.5"),
        ({"at": True}, "whole number, not True"),
        ({"after": timedelta(microseconds=-1)}, "is negative"),
        ({"after": INT64_MAX}, "the due time is over"),
        ({"after": 2**63}, "is not within 0"),
        ({"after": "soon"}, "after: 'soon' is no length of time"),
        ({"after": "P1M"}, "after: 'P1M' is no length of time"),
        ({"expire_after": "9999999999999999999d"}, "expire_after: .* is not within 0"),
        ({"at": 0, "after": 0}, "give one of them"),
        ({"to": "__consumer_offsets"}, "never delivered to"),
        ({"to": ""}, "is no topic name"),
        ({"to": ".."}, "is no topic name"),
        ({"to": "ordérs"}, "is no topic name"),
        ({"to": "orders\n"}, "is no topic name"),
        ({"to": ["a", "b", "a"]}, "the same target twice"),
        ({"to": [b"orders"]}, "is not text"),
        ({"key": 42}, "expected bytes or text, not int"),
        ({"partition": 2**31}, "is not within 0"),
        ({"deliver_id": "é" * 129}, "258 bytes; an id has up to 256"),
        ({"expire_after": 1.5}, "expire_after: expected"),
        ({"expire_after": timedelta(microseconds=-1)}, "expire_after: .* is negative"),
        ({"max_delay": -1}, "max_delay: -1"),
        ({"now_ms": 1.0}, "now_ms: expected"),
    ],
)
def test_what_would_be_rejected_is_an_error_that_names_the_argument(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises((ValueError, TypeError), match=said) as caught:
        deliver(**arguments)
    assert any(name in str(caught.value) for name in arguments)


def test_the_default_key_shows_what_it_means() -> None:
    assert repr(KEEP_KEY) == "KEEP_KEY"
    assert deliver(key=KEEP_KEY) == []
    assert deliver(key=None) == [("deliver-key", None)]


def test_the_file_can_be_copied_anywhere(tmp_path: Path) -> None:
    source = MODULE.read_text(encoding="utf-8")
    assert {found.top for found in imports_of(source, "sidecar")} <= sys.stdlib_module_names
    copy = tmp_path / "delayed.py"
    copy.write_text(source, encoding="utf-8")
    # -I and -S: neither this project nor any installed package is in reach.
    program = f"import sys; sys.path.append({str(tmp_path)!r}); import delayed; print(delayed.deliver(after=5, to='a'))"
    call = [sys.executable, "-I", "-S", "-c", program]
    said = subprocess.run(call, capture_output=True, text=True, check=True, timeout=60)
    assert ast.literal_eval(said.stdout) == [("deliver-after", b"5"), ("deliver-to", b"a")]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"every": timedelta(minutes=15), "times": 3}, [("deliver-every", b"900000"), ("deliver-times", b"3")]),
        (
            {"cron": "30 8 * * MON-FRI", "zone": "Europe/Berlin", "missed": "all"},
            [("deliver-cron", b"30 8 * * MON-FRI"), ("deliver-timezone", b"Europe/Berlin"), ("deliver-missed", b"all")],
        ),
        (
            {"every": 1_000, "until": NOW_MS + 5_000},
            [("deliver-every", b"1000"), ("deliver-until", b"%d" % (NOW_MS + 5_000))],
        ),
    ],
)
def test_what_recurs_is_accepted_as_it_is_built(arguments: dict[str, Any], expected: producing.Headers) -> None:
    headers = deliver(**arguments)
    assert headers == expected
    recurring = Rules(topic="orders.delay", default_target="orders", recurring=True)
    assert isinstance(recurring.decide(as_bytes(headers), NOW_MS), Schedule)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"every": 1, "cron": "* * * * *"}, "give one of them"),
        ({"times": 1}, "times: needs every or cron"),
        ({"every": 1, "zone": "UTC"}, "zone: needs cron"),
        ({"every": 0}, "every: more than nothing"),
        ({"cron": "* * * *"}, "are not five fields"),
        ({"cron": "61 9 * * *"}, "'61' is no minute: 0 to 59"),
        ({"cron": "0 9 * * MON-SUN"}, "'MON-SUN' is no day of week: 0 to 7"),
        ({"cron": "0 9 * * *", "zone": "Europe/Berlinn"}, "no time zone .* did you mean 'Europe/Berlin'"),
        ({"cron": "0 9 * * *", "zone": "Europe"}, "zone: 'Europe' is no time zone"),
        ({"cron": "0 9 * * *", "zone": "../etc/passwd"}, "is no time zone"),
        ({"cron": "0 9 * * *", "zone": ""}, "is no time zone"),
        ({"every": 1, "times": 0}, "times: more than nothing"),
        ({"every": 1, "missed": "some"}, "neither 'one' nor 'all'"),
        ({"every": 1, "until": 1_800_000_000}, "looks like seconds"),
    ],
)
def test_what_cannot_recur_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        deliver(**arguments)


cron_terms = st.from_regex(
    r"(\*|[0-9]{1,2}|MON|sun|Jan|L|LW|[0-9]L)(-([0-9]{1,2}|FRI|DEC))?(#[0-9]|/[0-9]{1,2})?", fullmatch=True
)
cron_fields = st.lists(cron_terms, min_size=1, max_size=2).map(",".join)


@given(st.integers(0, 4), cron_fields)
def test_a_cron_field_is_taken_if_the_router_takes_it(place: int, field: str) -> None:
    # No other field is a star: then the router also asks whether the date ever comes.
    fields = ["1", "1", "1", "1", "1"]
    fields[place] = field
    cron = " ".join(fields)
    try:
        check_cron(cron)
    except ValueError:
        with pytest.raises(ValueError, match=r"^cron: "):
            deliver(cron=cron)
    else:
        assert deliver(cron=cron) == [("deliver-cron", cron.encode())]


def test_without_a_list_of_time_zones_only_the_form_of_a_name_is_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producing, "available_timezones", set)
    assert ("deliver-timezone", b"Europe/Berlinn") in deliver(cron="0 9 * * *", zone="Europe/Berlinn")
    with pytest.raises(ValueError, match="is no time zone"):
        deliver(cron="0 9 * * *", zone="Europe Berlin")


ids = st.binary(max_size=MAX_ID_BYTES) | st.text(max_size=MAX_ID_BYTES // 4)


def control(headers: producing.Headers) -> Control:
    found = decided(headers)
    assert isinstance(found, Control), found
    return found


@given(ids, st.none() | plain_ms | moments)
def test_controls_ask_for_what_is_due_when_deliver_writes_the_same_instant(name: bytes | str, due: Any) -> None:
    scheduled = AT_ONCE if due is None else decided(deliver(at=due))
    due_ms = scheduled.due_ms if isinstance(scheduled, Schedule) else None
    cancels = control(cancel(name, if_due=due))
    assert cancels == Control(Action.CANCEL, raw(name) or b"", due_ms)
    replaces = control(deliver(after=5, deliver_id=name, replace=True, if_due=due, now_ms=NOW_MS))
    assert replaces == Control(Action.REPLACE, raw(name) or b"", due_ms, schedule=replaces.schedule)
    assert replaces.schedule == decided(deliver(after=5, deliver_id=name, now_ms=NOW_MS))
    moves = control(move(name, after=5, if_due=due))
    assert moves == Control(Action.MOVE, raw(name) or b"", due_ms, due_ms=NOW_MS + 5)


@given(ids, plain_ms | moments)
def test_what_is_moved_is_due_when_deliver_writes_the_same_instant(name: bytes | str, at: Any) -> None:
    moving, written = control(move(name, at=at)), decided(deliver(at=at))
    assert isinstance(written, Schedule)
    assert (moving.due_ms, moving.schedule) == (written.due_ms, None)


@pytest.mark.parametrize("given_twice", [{}, {"at": NOW_MS, "after": 5}])
def test_a_move_is_to_one_time(given_twice: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="move: give at or after, one of them"):
        move("a", **given_twice)


def test_what_replaces_is_a_schedule_as_without_it() -> None:
    given: dict[str, Any] = {"after": 5, "to": "billing", "deliver_id": "a"}
    assert schedule_of(decided(deliver(**given, replace=True))) == decided(deliver(**given))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"replace": True}, "replace: needs deliver_id"),
        ({"if_due": NOW_MS, "deliver_id": "a"}, "if_due: needs replace"),
        ({"replace": True, "deliver_id": "a", "if_due": 1_800_000_000}, "looks like seconds"),
    ],
)
def test_half_of_a_replacement_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        deliver(**arguments)


texts = st.text(min_size=1, max_size=40)
queries = st.fixed_dictionaries(
    {},
    optional={
        "target": texts,
        "due_from": st.integers(0, 10**9 - 1),
        "due_to": st.integers(10**12, 10**13) | moments.filter(lambda each: each.year > 2001),
        "id_prefix": texts,
        "header": st.tuples(texts, texts | st.just("")),
    },
)


@given(queries.filter(bool))
def test_a_query_is_read_as_it_is_built(asked: dict[str, Any]) -> None:
    control_of = control(cancel_where(**asked))
    assert control_of.action is Action.CANCEL_WHERE
    where = parse_where(control_of.where)
    assert (where.target, where.id_prefix) == (asked.get("target", ""), raw(asked.get("id_prefix")))
    for name, bound_ms in (("due_from", where.due_from_ms), ("due_to", where.due_to_ms)):
        scheduled = decided(deliver(at=asked[name])) if name in asked else None
        assert bound_ms == (scheduled.due_ms if isinstance(scheduled, Schedule) else None)
    header = asked.get("header")
    assert where.header == (None if header is None else WantedHeader(header[0], header[1].encode()))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "would cancel everything"),
        ({"target": ""}, "target: '' is empty"),
        ({"target": 7}, "target: 7 is not text"),
        ({"id_prefix": "x" * 257}, "id_prefix: .* longer than 256 bytes"),
        ({"header": ("", "7")}, "header: '' is empty"),
        ({"header": ("customer", 7)}, "header: 7 is not text"),
        ({"header": ("customer", "x" * 4_090)}, "a query has up to 4096"),
        ({"due_from": 1_800_000_000}, "due_from: 1800000000 looks like seconds"),
        ({"due_to": "tomorrow"}, "due_to: 'tomorrow' is not RFC 3339"),
        ({"due_from": 5, "due_to": 5}, "due_to: is not after due_from"),
    ],
)
def test_a_query_that_the_router_would_reject_is_an_error(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        cancel_where(**arguments)


@pytest.mark.parametrize(("name", "message"), [("x" * 257, "an id has up to 256"), (7, "expected bytes or text")])
def test_what_cannot_be_an_id_cancels_nothing(name: Any, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        cancel(name)
