"""The findings about a status topic that exists."""

import pytest

from sidecar.cluster.topics.findings import Level
from sidecar.cluster.topics.status_topic import examine, wanted_status
from sidecar.kafka.client.admin import TopicFacts

GOOD = wanted_status("s", 1).settings


def facts(settings: dict[str, str] | None) -> TopicFacts:
    return TopicFacts("s", "id", 1, 1, frozenset(), settings)


def test_one_as_init_makes_it_is_all_right() -> None:
    (finding,) = examine(facts(GOOD), "b:1")
    assert (finding.level, finding.thing) == (Level.OK, "status topic s")


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("cleanup.policy", "compact", "cleanup.policy=compact: old reports pile up"),
        ("cleanup.policy", "delete", "cleanup.policy=delete: old reports pile up"),
        ("retention.ms", "-1", "retention.ms=-1: reports of routers that are no more stay"),
        ("retention.ms", "604800000", "retention.ms=604800000: reports of routers that are no more stay"),
        ("retention.ms", "1000", "retention.ms=1000: reports go before they are read"),
        ("segment.ms", "604800000", "segment.ms is over an hour"),
    ],
)
def test_what_differs_is_told_with_the_command_that_mends_it(key: str, value: str, said: str) -> None:
    (finding,) = examine(facts({**GOOD, key: value}), "b:1")
    assert (finding.level, finding.message[: len(said)]) == (Level.WARN, said)
    wanted = f"[{GOOD[key]}]" if "," in GOOD[key] else GOOD[key]
    assert f"--entity-name s --add-config {key}={wanted}" in finding.remedy


def test_settings_that_may_not_be_seen() -> None:
    (finding,) = examine(facts(None), "b:1")
    assert (finding.level, finding.remedy) == (Level.WARN, "allow DescribeConfigs on topic s")
