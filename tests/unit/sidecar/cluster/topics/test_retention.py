"""The findings about the retention of a delay topic, by payload placement."""

import pytest

from sidecar.cluster.topics.findings import Finding, Level
from sidecar.cluster.topics.retention import Remedies, retention_findings, retention_of, wanted_retention_ms
from sidecar.config.delay_topic import DAY_MS, DelayTopicConfig
from sidecar.config.retention import Retention, placement_under

REMEDIES = Remedies("LONGER", "ANY_SIZE", "SMALLER")
MINUTE_MS = 60_000


def topic(**keys: object) -> DelayTopicConfig:
    return DelayTopicConfig.model_validate({"name": "d", "default_target": "t", "max_delay": "7d", **keys})


def settings(retention_ms: int, max_bytes: int = 1_048_588) -> dict[str, str]:
    return {"retention.ms": str(retention_ms), "max.message.bytes": str(max_bytes)}


def found(config: DelayTopicConfig, given: dict[str, str]) -> list[Finding]:
    return list(retention_findings("delay topic d", config, given, REMEDIES))


def levels(config: DelayTopicConfig, given: dict[str, str]) -> list[Level]:
    return [finding.level for finding in found(config, given)]


@pytest.mark.parametrize("placement", ["inline", "pointer", "auto"])
@pytest.mark.parametrize("max_delay", ["7d", "0"])
def test_what_init_creates_is_right_for_every_placement(placement: str, max_delay: str) -> None:
    config = topic(placement=placement, max_delay=max_delay)
    assert found(config, settings(wanted_retention_ms(config))) == []


def test_pointers_need_the_longest_delay() -> None:
    config = topic(placement="pointer")
    (finding,) = found(config, settings(7 * DAY_MS - 1))
    assert finding.level is Level.ERROR
    assert f"retention.ms={7 * DAY_MS - 1} keeps" in finding.message
    assert "max_delay is 7d and placement is pointer" in finding.message
    assert finding.remedy == 'LONGER; or placement = "inline"'
    assert levels(config, settings(7 * DAY_MS)) == [Level.WARN]
    assert levels(config, settings(8 * DAY_MS)) == []
    assert levels(topic(placement="pointer", max_delay="0"), settings(8 * DAY_MS)) == [Level.WARN]


def test_inline_needs_minutes() -> None:
    config = topic(placement="inline", seal_age="10m")
    small = 500_000
    assert levels(config, settings(25 * MINUTE_MS, small)) == []
    (finding,) = found(config, settings(25 * MINUTE_MS - 1, small))
    assert finding.level is Level.WARN
    assert "needed for 25m (seal_age and merging)" in finding.message


def test_inline_records_that_fit_into_no_segment_need_the_longest_delay() -> None:
    config = topic(placement="inline")
    (finding,) = found(config, settings(DAY_MS))
    assert finding.level is Level.WARN
    assert "larger than segment_bytes=524288" in finding.message
    assert finding.remedy == "LONGER; or let nothing larger in: SMALLER"
    assert levels(config, settings(DAY_MS, max_bytes=524_288)) == []
    assert levels(config, settings(7 * DAY_MS)) == []
    assert levels(topic(placement="inline", max_delay="0"), settings(70 * DAY_MS)) == [Level.WARN]


def test_auto_is_inline_where_retention_is_short_and_says_so() -> None:
    (finding,) = found(topic(), settings(DAY_MS))
    assert finding.level is Level.WARN
    assert "placement auto keeps payload inline because of that" in finding.message
    assert levels(topic(), settings(DAY_MS, max_bytes=100_000)) == []
    assert levels(topic(), settings(7 * DAY_MS)) == [Level.WARN], "little is left for an outage"


def test_removal_by_size_is_warned_about() -> None:
    (finding,) = found(topic(), settings(30 * DAY_MS) | {"retention.bytes": "1000"})
    assert (finding.level, finding.remedy) == (Level.WARN, "ANY_SIZE")


@pytest.mark.parametrize(
    ("retention", "max_delay", "expected"),
    [
        (Retention(-1), "7d", "auto"),
        (Retention(-1), "0", "auto"),
        (Retention(7 * DAY_MS), "7d", "auto"),
        (Retention(7 * DAY_MS - 1), "7d", "inline"),
        (Retention(70 * DAY_MS), "0", "inline"),
        (Retention(-1, keeps_bytes=1 << 30), "7d", "inline"),
        (Retention(None), "7d", "inline"),
    ],
)
def test_auto_points_only_where_retention_is_known_to_be_long_enough(
    retention: Retention, max_delay: str, expected: str
) -> None:
    assert placement_under(topic(max_delay=max_delay), retention) == expected
    for fixed in ("inline", "pointer"):
        assert placement_under(topic(max_delay=max_delay, placement=fixed), retention) == fixed


def test_effective_retention_from_settings() -> None:
    assert retention_of(None) == Retention(None)
    assert retention_of({"cleanup.policy": "", "retention.ms": "5"}) == Retention(-1)
    assert retention_of({"cleanup.policy": "delete", "retention.ms": "5", "retention.bytes": "6"}) == Retention(5, 6)
