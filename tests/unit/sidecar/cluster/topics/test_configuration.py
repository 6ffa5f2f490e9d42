"""The findings of ``check`` about a configuration, without asking the cluster."""

from typing import Any

import pytest

from sidecar.cluster.topics.check import configuration_findings
from sidecar.config.model import Config


@pytest.mark.parametrize(
    ("topic", "warned"),
    [
        ({"default_target": "t", "delay": "5m"}, []),
        ({"allowed_targets": ["t"]}, []),
        ({"allowed_targets": ["t"], "delay": "5m"}, ["has a delay for records without headers, and no default_target"]),
        (
            {"allowed_targets": ["t"], "retry": {"attempts": 1, "dead_letter": "dead"}},
            ["counts attempts, and has no default_target"],
        ),
        ({"default_target": "t", "retry": {"attempts": 1, "dead_letter": "dead"}}, []),
        ({"delay": "5m"}, ["has neither default_target nor allowed_targets"]),
    ],
)
def test_records_without_headers_need_a_target(topic: dict[str, Any], warned: list[str]) -> None:
    config = Config.model_validate({"kafka": {"bootstrap.servers": "x:1"}, "delay_topics": [{"name": "d", **topic}]})
    found = [each for each in configuration_findings(config) if each.level.value == "warn"]
    assert [each.message.partition(":")[0] for each in found] == warned
    assert all(each.remedy == "set default_target for d" for each in found)
