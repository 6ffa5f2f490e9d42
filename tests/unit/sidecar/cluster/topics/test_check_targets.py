"""The findings of ``check`` about targets that belong to other delay routers."""

from typing import Any

from sidecar.cluster.topics import check_targets
from sidecar.cluster.topics.findings import Level
from sidecar.config.model import Config


def told(existing: list[str], **options: Any) -> list[tuple[Level, str]]:
    config = Config.model_validate(
        {"kafka": {"bootstrap.servers": "a"}, "delay_topics": [{"name": "d", "default_target": "out", **options}]}
    )
    return [(finding.level, finding.message) for finding in check_targets.findings(config, existing)]


OWN = ["d", "d.delay-state", "d.delay-snapshots", "d.rejected", "out"]


def test_own_topics_and_what_no_target_covers_is_not_worth_a_word() -> None:
    assert told(OWN, allowed_targets=["*"]) == []
    assert told([*OWN, "x", "x.delay-state", "x.rejected"], allowed_targets=["y.*"]) == []


def test_what_others_keep_is_named_though_nothing_is_delivered_there() -> None:
    others = ["b.delay-snapshots", "b.rejected", "b.receipts"]
    assert told([*OWN, *others], allowed_targets=["b.*", "c"]) == [
        (Level.OK, "'b.*' covers topics of other routers, never a target: b.delay-snapshots, b.receipts, b.rejected")
    ]
    many = [f"b{number}.rejected" for number in range(8)]
    assert told([*OWN, *many], allowed_targets=["b*"])[0][1].endswith("b4.rejected and 3 more")


def test_delay_topics_of_others_are_warned_of() -> None:
    others = ["orders", "orders.delay-state"]
    warning = "may deliver to delay topics of other routers (orders), where records wait again"
    assert told([*OWN, *others], default_target="orders") == [(Level.WARN, warning)]
    assert (Level.WARN, warning) in told([*OWN, *others], allowed_targets=["ord*"])
