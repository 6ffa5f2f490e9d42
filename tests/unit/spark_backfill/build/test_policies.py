"""The targets that policies have named beside those of the configuration."""

import json
from typing import Any

import pytest

from index.buckets.bucket_rules import SealRules
from index.rules.rules import Retry, Rules
from spark_backfill.build.policies import unread_targets
from spark_backfill.settings import DelayTopic


def topic(**rules: Any) -> DelayTopic:
    return DelayTopic(Rules("d", "out", **rules), "d.s", "d.n", "d.r", "d.b", "d.q", SealRules())


def unread(*policies: dict[str, Any], more: tuple[str, ...] = (), **rules: Any) -> list[str]:
    values = [json.dumps(policy).encode() for policy in policies]
    return unread_targets(values, topic(**rules), more)


@pytest.mark.parametrize(
    ("policy", "names"),
    [
        ({"default_target": "other"}, ["other"]),
        ({"allowed_targets": ["a", "b.*", "out"]}, ["a", "b.*"]),
        ({"retry": {"first": "1s", "attempts": 2, "dead_letter": "dead"}}, ["dead"]),
        ({"max_delay": "1h", "retry": "none", "allowed_targets": "a", "default_target": 3}, []),
    ],
)
def test_each_target_of_a_policy_is_named(policy: dict[str, Any], names: list[str]) -> None:
    assert unread(policy) == names


def test_a_target_that_the_job_reads_is_not_named() -> None:
    policy = {"allowed_targets": ["a", "b.*", "b.c"], "default_target": "m", "retry": {"dead_letter": "dead"}}
    retry = Retry(1_000, 2_000, 60_000, 0, 3, "dead")
    assert unread(policy, more=("m",), allowed_targets=("a", "b*"), retry=retry) == []


def test_former_policies_count_and_other_bytes_do_not() -> None:
    assert unread({"default_target": "first"}, {"default_target": "second"}) == ["first", "second"]
    assert unread_targets([b"{", b"[1]", b"\xff"], topic(), ()) == []
