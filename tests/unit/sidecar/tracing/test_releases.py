"""The released records that are traced; and tracing never holds up a release."""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from index.errors import ConfigError
from index.pending.pending import Entry
from index.protocol.headers import Headers
from index.protocol.record import Record
from index.protocol.schedule import AT_ONCE, BY_KEY, KEEP_KEY, Schedule
from sidecar.config.model import Config
from sidecar.engine.payload.records import Scheduled
from sidecar.tracing import releases, start
from sidecar.tracing.releases import ReleaseTracing, Traced, traced_among

PLACE = ("orders.delay", 3)
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
SAMPLED = f"00-{TRACE}-00f067aa0ba902b7-01".encode()
UNSAMPLED = SAMPLED[:-1] + b"0"
NOW_MS = 9_000


def entry(headers: Headers, *, offset: int = 7, due_ms: int = 5_000, value: bytes | None = b"v") -> Entry[Scheduled]:
    schedule = Schedule(due_ms, ("orders", "audit"), BY_KEY, KEEP_KEY, None, both_times=False)
    return due_ms, offset, Scheduled(schedule, 10, Record(None, value, headers, 1_000))


def told(*entries: Entry[Scheduled]) -> list[Traced]:
    return [*traced_among(PLACE, "g", entries, NOW_MS)]


def nothing() -> None:
    """Do nothing at the end."""


def test_a_sampled_record_is_told_with_when_it_was_due() -> None:
    state = ("tracestate", b"vendor=1")
    assert told(entry([("other", None), ("traceparent", SAMPLED), state])) == [
        Traced(*PLACE, 7, "g", ("orders", "audit"), False, 5_000, NOW_MS, SAMPLED.decode(), "vendor=1")
    ]


def test_a_record_that_came_after_its_due_time_began_when_it_was_sent() -> None:
    traced = [("traceparent", SAMPLED)]
    assert [each.began_ms for each in told(entry(traced, due_ms=500), entry(traced, due_ms=AT_ONCE))] == [1_000, 1_000]
    # The clock was set back meanwhile.
    assert [each.began_ms for each in told(entry(traced, due_ms=NOW_MS + 50))] == [NOW_MS]


def test_of_several_the_last_counts() -> None:
    assert told(entry([("traceparent", SAMPLED), ("traceparent", UNSAMPLED)])) == []
    assert len(told(entry([("traceparent", UNSAMPLED), ("traceparent", SAMPLED)]))) == 1


@pytest.mark.parametrize("value", [UNSAMPLED, None, b"", b"01", SAMPLED[:-2], SAMPLED[:-1] + b"x"])
def test_others_are_not(value: bytes | None) -> None:
    assert told(entry([("traceparent", value)]), entry([])) == []


@given(st.binary(max_size=80), st.binary(max_size=20))
def test_whatever_is_in_the_headers_is_no_error(parent: bytes, state: bytes) -> None:
    told(entry([("traceparent", parent), ("tracestate", state)]))


def test_no_more_than_so_many_are_looked_through(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(releases, "EXAMINED_RECORDS", 2)
    found: list[Traced] = []
    tracing = ReleaseTracing(found.append, nothing)
    tracing.released(PLACE, "g", [entry([("traceparent", SAMPLED)], offset=offset) for offset in range(5)], NOW_MS)
    tracing.start()
    tracing.stop()
    assert [each.offset for each in found] == [0, 1]


def test_what_does_not_fit_is_dropped_and_told_in_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(releases, "WAITING_RELEASES", 3)
    found: list[Traced] = []
    with capture_logs() as lines:
        tracing = ReleaseTracing(found.append, nothing)
        for offset in range(5):
            tracing.released(PLACE, "g", [entry([("traceparent", SAMPLED)], offset=offset)], NOW_MS)
        assert tracing.dropped == 2
        tracing.start()
        tracing.stop()
    assert [each.offset for each in found] == [0, 1, 2]
    assert [line["event"] for line in lines] == ["traces_dropped"]


def test_an_error_of_a_library_ends_nothing() -> None:
    found: list[int] = []
    closed: list[bool] = []

    def tell(traced: Traced) -> None:
        if traced.offset == 0:
            raise RuntimeError("no collector")
        found.append(traced.offset)

    with capture_logs() as lines:
        tracing = ReleaseTracing(tell, lambda: closed.append(True))
        tracing.released(PLACE, "g", [entry([("traceparent", SAMPLED)], offset=offset) for offset in range(2)], NOW_MS)
        tracing.start()
        tracing.stop()
    assert (found, closed, tracing.is_alive()) == ([1], [True], False)
    assert [line["event"] for line in lines] == ["tracing_failed"]


def configured(*, tracing: bool) -> Config:
    return Config.model_validate({"kafka": {"bootstrap.servers": "b:1"}, "router": {"tracing": tracing}})


def test_it_is_off_by_default_and_then_nothing_of_it_is_loaded() -> None:
    assert start.started(configured(tracing=False)) is None
    loaded = "import sys, sidecar.app; sys.exit('opentelemetry.sdk' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", loaded], check=False).returncode == 0


def test_without_the_extra_the_router_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start, "NEEDED", ("opentelemetry.nowhere.at_all",))
    with pytest.raises(ConfigError, match=r"uv tool install --force '\.\[tracing\]'"):
        start.started(configured(tracing=True))
