"""Tests of the expressions that find the records which a query has cancelled, and of the receipts that tell queries."""

import json
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from spark_backfill.audit.protocol import Protocol
from spark_backfill.audit.queries import AnsweredQuery, answered_queries, is_queried

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
    queried = is_queried(
        [AnsweredQuery("d", 0, 10, said)],
        protocol,
        f.col("names"),
        f.col("due_ms"),
        f.lit(SENT_MS),
        protocol.control(f.col("headers")),
        f.col("headers"),
    )
    found = [(row.partition, row.offset) for row in records.where(queried).collect()]
    assert found == [(0, offset) for offset in offsets]


def test_the_receipts_of_queries_tell_their_predicates(spark: SparkSession) -> None:
    def receipt(action: str, *headers: tuple[str, bytes]) -> tuple[bytes, list[tuple[str, bytes]]]:
        return json.dumps({"action": action, "outcome": "x"}).encode(), list(headers)

    source = ("delay-source", b"d/3/10")
    rows = [
        receipt("cancel-where", ("Deliver-Cancel-Where", b'{"target": "x"}'), source),
        receipt("cancel-where", source),
        receipt("cancel-where", ("deliver-cancel-where", b'{"target": "x"}'), ("delay-source", b"d")),
        receipt("cancel", ("deliver-cancel", b"a"), source),
        (b"no receipt", [source]),
    ]
    receipts = spark.createDataFrame(rows, f"value binary, headers {HEADERS}")
    assert answered_queries(receipts) == [AnsweredQuery("d", 3, 10, {"target": "x"})]
