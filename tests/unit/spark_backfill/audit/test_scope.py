"""The topics that an audit reads."""

from index.buckets.bucket_rules import SealRules
from index.rules.rules import Rules
from spark_backfill.audit.scope import receipts_of
from spark_backfill.settings import DelayTopic


def test_a_receipts_topic_that_is_not_there_is_named_and_not_read() -> None:
    topics = [
        DelayTopic(Rules(name, default_target="t"), "s", "n", "r", "b", f"{name}.receipts", SealRules())
        for name in ("d", "e")
    ]
    said: list[str] = []
    assert receipts_of(topics, ["d", "d.receipts", "e"], said.append) == ["d.receipts"]
    (line,) = said
    assert line.startswith("e.receipts is not there, or must not be seen")
