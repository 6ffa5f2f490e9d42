"""The demo without Kafka: its records, its view of arrivals, its display, and the cases in which it fails."""

import io
import json
import re
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from rich.console import Console

from sidecar.cli.program import cli
from sidecar.dev import demo
from sidecar.dev.audit import AuditedRecord, AuditReport
from sidecar.dev.audit.record import due_ms
from sidecar.dev.demo import run
from sidecar.dev.demo.board import Board
from sidecar.dev.demo.orders import (
    ATTEMPTS,
    FAILING,
    LONGEST_DELAY_MS,
    REGRETTED,
    TIMES,
    Topics,
    changing,
    orders,
    regretted,
    retried,
)
from sidecar.dev.demo.router import RouterProcess, RouterProcessError, config_text
from sidecar.dev.demo.show import show
from sidecar.dev.local_kafka import free_port

TOPICS = Topics.of("")
NOW_MS = 1_767_225_600_000


def test_orders_use_every_header_and_are_due_when_they_say() -> None:
    made = list(orders(30, TOPICS, NOW_MS))
    good, bad = made[:-FAILING], made[-FAILING:]
    delays = []
    for order in good:
        due = due_ms(AuditedRecord("d", 0, 0, None, None, order.headers, NOW_MS))
        assert due == (order.due_ms if order.delay_ms is None else NOW_MS + order.delay_ms)
        delays.append(due - NOW_MS)
    assert (min(delays), max(delays), len(set(delays))) == (0, LONGEST_DELAY_MS, 30)
    assert delays != sorted(delays)
    ways = " ".join(order.ways for order in good)
    for way in (
        r"deliver-at \d+",
        r"deliver-at \S+Z",
        r"deliver-at \S+\+02:00",
        r"deliver-after \d+",
        "deliver-after PT",
    ):
        assert re.search(way, ways)
    assert {order.targets for order in good} == {("orders",), ("billing",), ("orders", "billing")}
    assert [order.ways for order in bad] == ["deliver-after 90000000", "deliver-at tomorrow at noon"]
    assert not any(order.targets for order in bad)


@pytest.mark.parametrize("count", [1, 2, 3, 12, 97])
def test_any_number_of_orders_is_scattered_evenly(count: int) -> None:
    made = [order for order in orders(count, TOPICS, 0) if order.targets]
    delays = {order.due_ms if order.delay_ms is None else order.delay_ms for order in made}
    assert len(made) == len(delays) == count


def filled(count: int = 6) -> Board:
    board = Board()
    for number, order in enumerate(orders(count, TOPICS, NOW_MS)):
        board.sent(f"d/0/{number}", order, NOW_MS)
    return board


def source(number: int) -> tuple[str, bytes]:
    return "delay-source", b"d/0/%d" % number


def test_a_fan_out_has_arrived_when_it_is_in_every_target() -> None:
    board = filled()
    assert board.arrived("orders", NOW_MS + 10_000, [source(4)]) is None
    row = board.arrived("billing", NOW_MS + 10_007, [source(4)])
    assert row is not None
    assert row.arrived_ms == NOW_MS + 10_007
    assert row.due_ms is not None
    assert row.late_ms == NOW_MS + 10_007 - row.due_ms
    assert board.arrived("billing", NOW_MS, [source(4)]) is None  # the auditor finds second copies
    assert board.arrived("orders", NOW_MS, [("delay-source", b"e/0/0")]) is None


def test_the_board_is_complete_when_each_order_arrived_or_was_rejected() -> None:
    board = filled()
    for number, order in enumerate(orders(6, TOPICS, NOW_MS)):
        assert not board.complete
        for target in order.targets:
            board.arrived(target, NOW_MS, [source(number)])
        if not order.targets:
            board.arrived("orders.delay.rejected", NOW_MS, [("delay-error", b"WHY"), source(number)])
    assert board.complete


def regrets() -> Board:
    board = Board()
    for number, order in enumerate(regretted(6, TOPICS, NOW_MS)):
        board.sent(f"d/0/{number}", order, NOW_MS)
    return board


def receipt(outcome: str, offset: int) -> bytes:
    return json.dumps({"outcome": outcome, "cancelled": [{"offset": offset, "due": 1}]}).encode()


def test_what_is_taken_back_comes_to_its_end_by_the_receipt_and_what_replaces_by_its_arrival() -> None:
    board = regrets()
    assert len({order.key for order in regretted(6, TOPICS, NOW_MS)}) == 1
    assert len(board.rows) == REGRETTED
    assert board.answered(receipt("cancelled", 0), [("delay-source", b"e/0/1")]) == []
    first, control = board.answered(receipt("cancelled", 0), [source(1)])
    assert (first.taken_back, control.taken_back) == ("cancelled", "answered")
    (second,) = board.answered(receipt("replaced", 2), [source(3)])
    assert (second.taken_back, second.finished, board.complete) == ("replaced", True, False)
    assert board.arrived("orders", NOW_MS + 9_000, [source(3)]) is not None
    assert board.complete


def test_what_is_moved_comes_to_its_end_by_its_arrival_and_what_recurs_by_its_last() -> None:
    board = Board()
    for number, order in enumerate(changing(6, TOPICS, NOW_MS)):
        board.sent(f"d/0/{number}", order, NOW_MS)
    said = {"outcome": "moved", "cancelled": [{"offset": 0, "due": 1}], "due": NOW_MS + 6_000}
    (control,) = board.answered(json.dumps(said).encode(), [source(1)])
    assert (control.taken_back, board.complete) == ("answered", False)
    moved = board.arrived("orders", NOW_MS + 6_001, [source(17), ("delay-id", b"visit")])
    assert moved is not None
    assert (moved.order.name, moved.late_ms) == ("order 7", 1)
    for number in range(1, TIMES + 1):
        assert not board.complete
        due_ms = NOW_MS + 2_000 * number
        told = [("delay-series", b"d/0/2"), ("delay-occurrence", b"%d" % number), ("delay-due", b"%d" % due_ms)]
        board.arrived("orders", due_ms + 5, [source(20 + number), *told])
    assert ([row.late_ms for row in board.rows if row.occurrences], board.complete) == ([5], True)


def attempted(number: int, *more: tuple[str, bytes], sent: int) -> list[tuple[str, bytes]]:
    told = [("delay-attempt", b"%d" % number), ("delay-due", b"%d" % (NOW_MS + 1_000 * number))]
    return [("delay-source", b"orders.retry/0/%d" % sent), *told, *more]


@pytest.mark.parametrize("terminal", [False, True])
def test_an_order_that_fails_is_sent_back_until_it_is_handled_or_exhausted(terminal: bool) -> None:
    board = Board()
    for number, order in enumerate(retried(6, TOPICS)):
        board.sent(f"orders.retry/0/{number}", order, NOW_MS)
    console = Console(file=io.StringIO(), force_terminal=terminal, width=200, height=40, color_system=None)
    with show(board, console) as display:
        for which, attempts in ((0, 2), (1, ATTEMPTS + 1)):
            place = which
            for number in range(1, attempts):
                headers = attempted(number, sent=place)
                assert board.arrived("orders", NOW_MS, headers) is None
                failed = board.failed(headers)
                assert failed is not None
                assert failed.attempt == number
                place = 10 * (which + 1) + number
                board.sent_back(f"orders.retry/0/{place}", failed, NOW_MS)
                waits_ms = 1_000 * 2**number if number < ATTEMPTS else 0
                assert failed.due_ms == NOW_MS + waits_ms
            assert not board.complete
            end = ("orders", attempted(attempts, sent=place))
            if attempts > ATTEMPTS:
                end = ("orders.dlq", attempted(ATTEMPTS, ("delay-attempts-exhausted", b"3"), sent=place))
            row = board.arrived(end[0], NOW_MS + 3_005, end[1])
            assert row is not None
            assert board.failed(end[1]) is None
            display.finished(row)
    assert board.complete
    assert len(board.rows) == 2
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert re.search("order 7.*, handled in attempt 2", text)
    assert re.search("order 8.*, exhausted after 3 attempts", text)
    assert re.search(" 8 .*its consumer fails always .*orders.dlq", text)
    assert board.failed([("delay-source", b"d/0/0")]) is None


@pytest.mark.parametrize("terminal", [False, True])
def test_a_receipt_is_shown(terminal: bool) -> None:
    console = Console(file=io.StringIO(), force_terminal=terminal, width=200, height=40, color_system=None)
    board = regrets()
    with show(board, console) as display:
        for row in board.answered(receipt("cancelled", 0), [source(1)]):
            display.finished(row)
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert '{"outcome": "cancelled", "cancelled": [{"offset": 0, "due": 1}]}' in text
    assert re.search(r" 8 +deliver-cancel mistake +answered", text)


def shown(board: Board, *, terminal: bool, width: int = 120, height: int = 40) -> str:
    console = Console(file=io.StringIO(), force_terminal=terminal, width=width, height=height, color_system=None)
    with show(board, console) as display:
        display.say("[bold] is not markup")
        for headers, topic in (
            ([source(0)], "orders"),
            ([("delay-error", b"MAX_DELAY_EXCEEDED"), ("delay-error-message", b"over"), source(6)], "x"),
        ):
            row = board.arrived(topic, NOW_MS + 7, headers)
            assert row is not None
            display.finished(row)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_without_a_terminal_each_event_is_a_line() -> None:
    lines = shown(filled(), terminal=False, width=20).splitlines()
    assert lines[0] == "[bold] is not markup"
    assert re.fullmatch(r"  order 1  deliver-at 1767225600000 +orders +due \S+  arrived \S+  7 ms late", lines[1])
    assert re.fullmatch(r"  order 7  deliver-after 90000000 +rejected +MAX_DELAY_EXCEEDED: over", lines[2])
    assert len(lines) == 3


def test_a_terminal_has_the_whole_table_at_the_end() -> None:
    last = shown(filled(30), terminal=True, width=80, height=24).rpartition("Orders in the delay topic")[2]
    assert len(re.findall(r"^ +\d+ deliver-", last, re.MULTILINE)) == 32
    assert re.search(r"^ +1 deliver-at .*orders +\d\d:\d\d:\d\d\.\d{3} +7", last, re.MULTILINE)
    assert "[bold] is not markup" in last
    assert max(len(line) for line in last.splitlines()) <= 80


def test_a_live_frame_fits_the_screen() -> None:
    first = shown(filled(30), terminal=True, width=80, height=24).rpartition("Orders in the delay topic")[0]
    frames = first.split("Orders in the delay topic")[1:]
    assert frames
    assert all(len(re.findall(r"^ +\d+ deliver-", frame, re.MULTILINE)) <= 18 for frame in frames)


@pytest.mark.parametrize(
    ("found", "code"),
    [
        ({}, 0),
        ({"released_once": 40, "lost": 1}, 1),
        ({"released_once": 40, "duplicated": 1}, 1),
        ({"early": 1}, 1),
        ({"altered": 1}, 1),
        ({"released_once": 40, "pending": 1}, 1),
        ({"released_once": 40, "rejected": 3}, 1),
        ({"released_once": 42, "rejected": 1}, 1),
        ({"released_once": 42, "cancelled": 0}, 1),
        ({"released_once": 42, "moved": 0}, 1),
        ({"sent": 47, "released_once": 40}, 1),
    ],
    ids=str,
)
def test_the_exit_code_is_what_the_auditor_counted(
    found: dict[str, int], code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = {"sent": 48, "released_once": 41, "rejected": 2, "cancelled": 1, "replaced": 1, "moved": 1, "answered": 2}
    good = AuditReport(**counts, pending=0, duplicated=0, lost=0, lateness_ms=(1, 2))  # type: ignore[arg-type]
    report = replace(good, **found)  # type: ignore[arg-type]
    asked: list[dict[str, Any]] = []

    def audit(_: object, **topics: Any) -> AuditReport:
        asked.append(topics)
        return report

    monkeypatch.setattr(run, "audit", audit)
    output = io.StringIO()
    assert run.Demo("b:1", Console(file=output), count=30, kill=True, shared=False).conclude() == code
    assert report.summary() in output.getvalue()
    assert asked[0]["delay"] == ["orders.delay", "orders.retry"]
    assert asked[0]["targets"] == ["orders", "billing", "orders.dlq"]
    assert asked[0]["rejected"] == ["orders.delay.rejected", "orders.retry.rejected"]
    assert asked[0]["receipts"] == ["orders.delay.receipts", "orders.retry.receipts"]


@pytest.mark.parametrize("wrong", ["0", "-1", "1001", "many"])
def test_a_wrong_number_of_orders_is_wrong_usage(wrong: str) -> None:
    done = CliRunner().invoke(cli, ["demo", "--orders", wrong])
    assert (done.exit_code, "--orders" in done.stderr) == (2, True)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_being_ended_cleans_up_as_ctrl_c_does(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with pytest.raises(KeyboardInterrupt), demo.terminable():
        signal.raise_signal(number)
    assert signal.getsignal(number) is before


def test_configuration_text_is_toml() -> None:
    import tomllib  # noqa: PLC0415 - only this test reads it

    sections: dict[str, Any] = {
        "kafka": {"bootstrap.servers": "h:1", "quoted": 'a "b" \\ c\n'},
        "router": {"batch_records": 5, "on": True},
        "delay_topics": [{"name": "a", "aliases": [{"name": "x", "role": "at"}]}, {"name": "b", "list": []}],
    }
    assert tomllib.loads(config_text(sections)) == sections


def test_a_router_process_that_ends_is_told_with_its_log(tmp_path: Path) -> None:
    config = tmp_path / "router.toml"
    config.write_text("this is no TOML")
    with RouterProcess(config, free_port(), tmp_path / "log") as router:
        with pytest.raises(RouterProcessError, match="never started"):
            router.stop()
        router.start()
        with pytest.raises(RouterProcessError, match="exit code 2"):
            router.wait_ready()
        assert str(config) in router.log_text()
        assert router.http("/readyz")[0] == 0
        assert json.dumps(router.last_lines(1)) != "[]"
