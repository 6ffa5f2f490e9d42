"""Tests of the expressions that find the records which a query has cancelled, and of the receipts that tell queries."""

import json
import time
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from spark_backfill.audit.protocol import Protocol
from spark_backfill.audit.queries import AnsweredQuery, answered_queries, is_late, query_of
from tests.integration.scenario import Header, Stage, wait_until
from tests.spark.auditing import Hand, audit_stage

pytestmark = pytest.mark.timeout(600)

HEADERS = "array<struct<key:string,value:binary>>"
SENT_MS = 1_800_000_000_000
RECORDS: list[Any] = [
    (0, 5, ["out"], SENT_MS + 1_000, [("deliver-id", b"order-7"), ("customer", b"7")]),
    (0, 6, ["x", "out"], 0, [("customer", None)]),
    (0, 7, ["x"], SENT_MS + 2_000, [("Deliver-Id", "é".encode()), ("Customer", b"7")]),
    (1, 5, ["x"], SENT_MS + 2_000, [("customer", b"7")]),
    (0, 11, ["x"], SENT_MS + 2_000, [("customer", b"7")]),
]


@pytest.mark.parametrize(
    ("said", "offsets"),
    [
        ({"target": "x"}, [6, 7]),
        ({"due_from": SENT_MS + 2_000}, [7]),
        ({"due_to": "2027-01-15T08:00:02Z"}, [5, 6]),
        ({"due_from": SENT_MS + 1_000, "due_to": SENT_MS + 2_000}, [5]),
        ({"id_prefix": "order"}, [5]),
        ({"id_prefix": "é"}, [7]),
        ({"header": {"name": "customer", "value": "7"}}, [5]),
        ({"target": "x", "header": {"name": "Customer", "value": "7"}}, [7]),
    ],
)
def test_every_field_counts_and_only_what_lies_in_front(
    spark: SparkSession, said: dict[str, Any], offsets: list[int]
) -> None:
    schema = f"partition int, offset bigint, names array<string>, due_ms bigint, headers {HEADERS}"
    records = spark.createDataFrame(RECORDS, schema)
    protocol = Protocol()
    query, unmatched = AnsweredQuery("d", 0, 10, said, SENT_MS + 1_500), AnsweredQuery("d", 0, 9, said, cancelled=0)
    queried = query_of(
        [(0, unmatched), (1, query)],
        protocol,
        f.col("names"),
        f.col("due_ms"),
        f.lit(SENT_MS),
        protocol.control(f.col("headers")),
        f.col("headers"),
    )
    numbered = records.select("*", queried.alias("query"))
    found = [(row.partition, row.offset) for row in numbered.where(f.col("query") == 1).collect()]
    assert found == [(0, offset) for offset in offsets]
    late = numbered.where(is_late([(1, query)], f.col("query"), f.greatest("due_ms", f.lit(SENT_MS)), 100))
    assert [row.offset for row in late.collect()] == [offset for offset in offsets if offset != 7]


def test_the_receipts_of_queries_tell_their_predicates(spark: SparkSession) -> None:
    def receipt(action: str, *headers: tuple[str, bytes], **said: Any) -> tuple[bytes, list[tuple[str, bytes]], int]:
        return json.dumps({"action": action, "outcome": "x", **said}).encode(), list(headers), SENT_MS

    source, query = ("delay-source", b"d/3/10"), ("deliver-cancel-where", b'{"target": "x"}')
    rows = [
        receipt("cancel-where", ("Deliver-Cancel-Where", b'{"target": "x"}'), source),
        receipt("cancel-where", query, ("delay-source", b"d/3/9"), matched=None, estimated=7, cancelled=[]),
        receipt("cancel-where", query, ("delay-source", b"d/3/8"), matched=7, cancelled=[{"offset": 9, "due": 1}]),
        receipt("cancel-where", query, ("delay-source", b"d/3/7"), matched=7, cancelled=[], omitted={"cancelled": 7}),
        receipt("cancel-where", source),
        receipt("cancel-where", ("deliver-cancel-where", b'{"target": "x"}'), ("delay-source", b"d")),
        receipt("cancel", ("deliver-cancel", b"a"), source),
        (b"no receipt", [source], SENT_MS),
    ]
    receipts = spark.createDataFrame(rows, f"value binary, headers {HEADERS}, timestamp_ms bigint")
    assert answered_queries(receipts) == [
        AnsweredQuery("d", 3, offset, {"target": "x"}, SENT_MS, cancelled)
        for offset, cancelled in ((7, 0), (8, 6), (9, None), (10, None))
    ]


def test_a_query_hides_no_record_that_was_lost_before_it(spark: SparkSession, stage: Stage) -> None:
    """Each partition has one query, whose receipt tells another number."""
    delay = stage.delay(partitions=5, default_target=stage.target())
    hand = Hand(stage)
    customer: Header = ("customer", b"7")
    query: Header = ("deliver-cancel-where", json.dumps({"header": {"name": "customer", "value": "7"}}).encode())
    due: Header = ("deliver-after", b"1")
    far: Header = ("deliver-after", b"PT1H")
    cases: list[tuple[list[Header], int | None]] = [([due, far], 1), ([due, far], 2), ([due], 0), ([due], None)]
    cases.append(([far], 2))
    for partition, (times, _) in enumerate(cases):
        for each in times:
            stage.send(delay, customer, each, partition=partition)
    time.sleep(0.05)
    controls = [stage.send(delay, query, partition=partition) for partition in range(len(cases))]
    for partition, (_, matched) in enumerate(cases):
        said: dict[str, Any] = {
            "action": "cancel-where",
            "outcome": "cancelled-where",
            "cancelled": [],
            "due": None,
            "matched": matched,
        }
        value = json.dumps(said).encode()
        hand.write(f"{delay}.receipts", controls[partition], query, value=value, partition=partition)
    wait_until(lambda: stage.audit().answered == len(cases), "everything is visible")

    found = audit_stage(spark, stage)
    counts = [each.counts for each in found.partitions]
    assert [each["cancelled"] for each in counts] == [1, 2, 0, 0, 1]
    assert [each["unprovable"] for each in counts] == [1, 0, 0, 1, 0]
    assert [each["lost"] for each in counts] == [0, 0, 1, 0, 0]
    assert [each["altered"] for each in counts] == [1, 0, 0, 0, 1]
    assert {sample["source"] for sample in found.samples} == {controls[0], f"{delay}/2/0", controls[4]}
    assert (found.total.counts["answered"], found.total.violations) == (5, 3)
