"""The headers of ``send`` for a recurring schedule, and its report before anything is sent."""

from pathlib import Path
from typing import Any, cast

import pytest
from click.testing import CliRunner
from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME

from index.errors import ConfigError
from index.protocol.schedule import Control, Reason, Rejection, Schedule
from sidecar import clock
from sidecar.cli import send
from sidecar.cli.program import cli
from sidecar.cli.send import ControlRequest, judge
from sidecar.config.model import Config
from sidecar.kafka.client import admin
from tests.support.configuration import configured, loaded


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return loaded(tmp_path, configured(tmp_path, more='recurring = true\nmin_period = "10s"\n').read_text())


def asked(**recurs: str) -> list[tuple[str, bytes | None]]:
    return ControlRequest(recurs=tuple(recurs.items())).as_headers()


def test_options_become_headers() -> None:
    assert asked(every="15m", until="2030-01-01T00:00:00Z", times="3", missed="all") == [
        ("deliver-every", b"900000"),
        ("deliver-until", b"2030-01-01T00:00:00Z"),
        ("deliver-times", b"3"),
        ("deliver-missed", b"all"),
    ]
    assert asked(cron="0 8 * * *", timezone="UTC") == [("deliver-cron", b"0 8 * * *"), ("deliver-timezone", b"UTC")]
    with pytest.raises(ConfigError, match="--every: "):
        asked(every="often")


def test_the_first_occurrence_by_cron_is_told(config: Config) -> None:
    verdict = judge(config, "orders.delay", asked(cron="0 8 * * *", timezone="Europe/Berlin"), clock.now_ms())
    assert isinstance(verdict, Schedule)
    assert verdict.due_ms % 3_600_000 == 0
    assert verdict.due_ms > 0


@pytest.mark.parametrize(
    ("recurs", "message"),
    [
        ({"every": "9s"}, "min_period of this delay topic, 10000 ms"),
        ({"cron": "0 25 * * *"}, "Bad hour"),
        ({"cron": "0 8 * * *", "timezone": "Europe/Atlantis"}, "no such time zone"),
        ({"times": "3"}, "needs deliver-every or deliver-cron"),
    ],
)
def test_what_will_be_rejected_is_said(config: Config, recurs: dict[str, str], message: str) -> None:
    verdict = judge(config, "orders.delay", asked(**recurs), clock.now_ms())
    assert isinstance(verdict, Rejection)
    assert verdict.reason == Reason.INVALID_SCHEDULE
    assert message in verdict.message


def test_where_the_delay_topic_does_not_allow_it_the_key_is_named(tmp_path: Path) -> None:
    plain = loaded(tmp_path, configured(tmp_path).read_text())
    verdict = judge(plain, "orders.delay", asked(every="1m"), clock.now_ms())
    assert isinstance(verdict, Rejection)
    assert "recurring = true" in verdict.message
    assert isinstance(judge(plain, "of.others", asked(every="1m"), clock.now_ms()), Schedule)


@pytest.mark.parametrize(
    ("topic", "message"),
    [
        ("orders", "orders is a target: a record that is sent there is delivered at once; did you mean orders.delay?"),
        ("billing", "did you mean orders.delay?"),
        ("orders.delay.delay-state", "is a topic that the router keeps for itself; did you mean orders.delay?"),
        ("orders.delay.rejected", "did you mean orders.delay?"),
        ("orders.delay.receipts", "did you mean orders.delay?"),
        ("others.delay.delay-snapshots", "did you mean others.delay?"),
        ("__delay-router.policies", "is a topic that the router keeps for itself"),
    ],
)
@pytest.mark.parametrize("forced", [(), ("--force",)])
def test_nothing_is_sent_to_a_target_or_a_topic_of_the_router(
    tmp_path: Path, topic: str, message: str, forced: tuple[str, ...]
) -> None:
    file = configured(tmp_path, "billing", "eu.*")
    arguments = ["send", topic, "-c", str(file), "--value", "x", "--after", "1h", *forced]
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 2, result.output
    assert message in result.stderr
    assert result.stdout == ""


def refused(config: Config, topic: str, monkeypatch: pytest.MonkeyPatch, *there: str, force: bool = False) -> str:
    """Return why a record for an existing topic is refused; empty where it is sent."""
    monkeypatch.setattr(admin, "is_there", lambda _, name: name in there)
    try:
        send.refuse_unserved(config, cast("Any", None), topic, force=force)
    except ConfigError as error:
        return str(error)
    return ""


def test_a_topic_of_another_router_takes_force(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = loaded(tmp_path, configured(tmp_path, "eu.*").read_text())
    told = refused(made, "order.delay", monkeypatch)
    assert told.startswith("order.delay is no delay topic of this configuration (orders.delay), and a record")
    assert told.endswith("then give --force; did you mean orders.delay?")
    assert refused(made, "order.delay", monkeypatch, force=True) == ""
    assert refused(made, "orders.delay", monkeypatch) == ""


def test_a_target_by_pattern_takes_force_only_where_another_router_has_its_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = loaded(tmp_path, configured(tmp_path, "eu.*").read_text())
    for there, force in (((), False), ((), True), (("eu.x.delay-state",), False)):
        told = refused(made, "eu.x", monkeypatch, *there, force=force)
        assert told.endswith(
            "is a target: a record that is sent there is delivered at once; did you mean orders.delay?"
        )
    assert refused(made, "eu.x", monkeypatch, "eu.x.delay-state", force=True) == ""


REPLACES = ControlRequest(after="1h", deliver_id="order-7", replaces=True, if_due_ms=70).as_headers()


def test_what_replaces_is_judged_as_by_the_router(tmp_path: Path, config: Config) -> None:
    assert REPLACES[1:] == [("deliver-id", b"order-7"), ("deliver-replace", b"true"), ("deliver-if-due", b"70")]
    plain = loaded(tmp_path, configured(tmp_path).read_text())
    assert isinstance(judge(plain, "orders.delay", REPLACES, clock.now_ms()), Control)
    assert isinstance(judge(plain, "of.others", REPLACES, clock.now_ms()), Control)
    assert isinstance(judge(config, "orders.delay", REPLACES, clock.now_ms()), Control)


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (ControlRequest(replaces=True), "deliver-id says which schedule, and is missing"),
        (ControlRequest(deliver_id="a", if_due_ms=70), "deliver-if-due: only beside"),
    ],
)
def test_half_of_a_replacement_is_refused(config: Config, request_: ControlRequest, message: str) -> None:
    verdict = judge(config, "of.others", request_.as_headers(), clock.now_ms())
    assert isinstance(verdict, Rejection)
    assert message in verdict.message


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--replace", "--id", "a", "--lines"], "with --lines each would replace the one before"),
        (["--id", "a", "--wait", "5", "--null"], "--wait is for the receipt of --replace"),
    ],
)
def test_options_of_a_replacement_that_contradict_are_wrong_usage(options: list[str], message: str) -> None:
    result = CliRunner().invoke(cli, ["send", "orders.delay", *options])
    assert result.exit_code == 2
    assert message in result.stderr


class Delivered:
    """A record that the broker has taken and stamped."""

    def partition(self) -> int:
        return 1

    def offset(self) -> int:
        return 7

    def timestamp(self) -> tuple[int, int]:
        return TIMESTAMP_LOG_APPEND_TIME, 5_000


class Producing:
    """A producer whose broker takes everything."""

    def produce(self, *_: object, on_delivery: Any, headers: object) -> None:
        on_delivery(None, Delivered())

    def poll(self, _: float) -> None:
        pass

    def flush(self, _: float) -> int:
        return 0


def test_when_it_is_due_is_told_by_the_time_that_the_broker_has_stamped(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(send, "_producer", lambda _: Producing())
    (sent,) = send.send(config, "orders.delay", [b"v"], None, ControlRequest(after="10s").as_headers())
    assert (sent.partition, sent.offset, sent.due_ms) == (1, 7, 15_000)
    (rejected,) = send.send(config, "orders.delay", [b"v"], None, [("deliver-att", b"1")])
    assert rejected.due_ms == 0
