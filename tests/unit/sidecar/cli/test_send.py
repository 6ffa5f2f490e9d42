"""What ``send`` asks for when a schedule is to recur, and what it says of that before anything is sent."""

from pathlib import Path

import pytest

from index.errors import ConfigError
from index.schedule import Reason, Rejection, Schedule
from sidecar.cli.send import Request, judge
from sidecar.config.model import Config
from tests.support.configuration import configured, loaded


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return loaded(tmp_path, configured(tmp_path, more='recurring = true\nmin_period = "10s"\n').read_text())


def asked(**recurs: str) -> list[tuple[str, bytes | None]]:
    return Request(recurs=tuple(recurs.items())).as_headers()


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
    verdict = judge(config, "orders.delay", asked(cron="0 8 * * *", timezone="Europe/Berlin"))
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
    verdict = judge(config, "orders.delay", asked(**recurs))
    assert isinstance(verdict, Rejection)
    assert verdict.reason == Reason.INVALID_SCHEDULE
    assert message in verdict.message


def test_where_the_delay_topic_does_not_allow_it_the_key_is_named(tmp_path: Path) -> None:
    plain = loaded(tmp_path, configured(tmp_path).read_text())
    verdict = judge(plain, "orders.delay", asked(every="1m"))
    assert isinstance(verdict, Rejection)
    assert "recurring = true" in verdict.message
    assert isinstance(judge(plain, "of.others", asked(every="1m")), Schedule)
