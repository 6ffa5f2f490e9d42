"""What ``init`` would create, before any broker is asked."""

from typing import Any

from sidecar.config.model import Config
from sidecar.topics.init import InitOptions, _first


def wanted(**options: Any) -> dict[str, str | None]:
    """Kind of timestamp by the name of the topic."""
    topics = [
        {"name": "a.delay", "default_target": "a", "allowed_targets": ["shared", "x.*"]},
        {"name": "b.delay", "default_target": "b", "allowed_targets": ["shared"]},
    ]
    config = Config.model_validate({"kafka": {"bootstrap.servers": "b:1"}, "delay_topics": topics})
    return {each.name: each.settings.get("message.timestamp.type") for each in _first(config, InitOptions(**options))}


def test_targets_get_the_time_of_release_unless_they_are_stamped_otherwise() -> None:
    delay_topics = dict.fromkeys(("a.delay", "b.delay"), "LogAppendTime")
    assert wanted() == delay_topics
    assert wanted(create_targets=True, stamped=frozenset({"b", "shared", "x.1"})) == {
        **delay_topics,
        "a": "LogAppendTime",
        "b": "CreateTime",
        "shared": "CreateTime",
    }
