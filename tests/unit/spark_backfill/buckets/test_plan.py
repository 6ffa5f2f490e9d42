"""The division of a range into buckets and slots, and the options translated for Spark's connector."""

import random
from itertools import pairwise
from pathlib import Path

import pytest

from index.errors import ConfigError
from index.pending.progress import Position
from spark_backfill.buckets.job import portable
from spark_backfill.buckets.plan import BucketRange, boundaries, buckets_of, planned
from spark_backfill.buckets.sampling import MOST_PLACES, places
from spark_backfill.session import parse_conf
from spark_backfill.source import OffsetRange, connector_options


@pytest.mark.parametrize(("span", "most"), [(1, 10), (10, 10), (11, 10), (5_000_001, 5_000_000), (999, 7)])
def test_buckets_cover_a_range_without_a_gap_and_are_alike(span: int, most: int) -> None:
    found = buckets_of([OffsetRange(3, 100, 100 + span)], most)
    assert found[0].from_offset == 100
    assert found[-1].to_offset == 100 + span
    assert all(one.to_offset == two.from_offset for one, two in pairwise(found))
    spans = [bucket.span for bucket in found]
    assert max(spans) <= most
    assert max(spans) - min(spans) <= 1


def test_empty_ranges_become_no_bucket() -> None:
    assert buckets_of([OffsetRange(0, 5, 5), OffsetRange(1, 5, 6)], 10) == [BucketRange(1, 5, 6)]


def test_boundaries_share_a_sample_evenly(rng: random.Random) -> None:
    sample = [Position(rng.randrange(1_000), offset) for offset in range(400)]
    found = boundaries(sample, 4)
    assert list(found) == sorted(found)
    shares = [sum(each >= bound for bound in found) for each in sample]
    assert [shares.count(slot) for slot in range(4)] == [100] * 4


def test_boundaries_of_small_samples() -> None:
    assert boundaries([], 5) == ()
    assert boundaries([Position(7, 1)], 5) == ()
    assert boundaries([Position(7, 1), Position(7, 2)], 5) == (Position(7, 2),)
    assert boundaries([Position(7, 1), Position(8, 0)], 1) == ()


def test_slots_are_numbered_through_all_buckets() -> None:
    one, two = BucketRange(0, 0, 100), BucketRange(1, 0, 10)
    slots = planned([one, two], {one: [Position(due, 0) for due in range(100)]}, 50)
    assert slots.bounds == ((Position(50, 0),), ())
    assert slots.first == [0, 2, 3]
    assert slots.count == 3
    assert slots.of_partition() == {0: [0], 1: [1]}


def test_places_to_look_at_lie_within_the_bucket() -> None:
    assert places(BucketRange(0, 10, 12), 1) == [10, 11]
    found = places(BucketRange(0, 1_000, 5_001_000), 1_000)
    assert len(found) == MOST_PLACES
    assert found[0] == 1_000
    assert found[-1] < 5_001_000


def test_what_librdkafka_is_told_the_connector_is_told(tmp_path: Path) -> None:
    authority = tmp_path / "ca.pem"
    authority.write_text("PEM TEXT")
    kafka = {
        "bootstrap.servers": "a:9092",
        "security.protocol": "sasl_ssl",
        "sasl.mechanisms": "SCRAM-SHA-512",
        "sasl.username": 'a"b',
        "sasl.password": "c\\d",
        "ssl.ca.location": str(authority),
        "ssl.endpoint.identification.algorithm": "none",
        "linger.ms": "5",
    }
    found = connector_options(kafka)
    assert found["kafka.security.protocol"] == "SASL_SSL"
    assert found["kafka.sasl.mechanism"] == "SCRAM-SHA-512"
    assert found["kafka.sasl.jaas.config"] == (
        'org.apache.kafka.common.security.scram.ScramLoginModule required username="a\\"b" password="c\\\\d";'
    )
    assert found["kafka.ssl.truststore.type"] == "PEM"
    assert found["kafka.ssl.truststore.certificates"] == "PEM TEXT"
    assert found["kafka.ssl.endpoint.identification.algorithm"] == ""
    assert not any("linger" in key for key in found)
    assert connector_options(portable(kafka)) == found


def test_security_that_cannot_be_translated_is_asked_for_not_left_out() -> None:
    kafka = {"bootstrap.servers": "a", "sasl.mechanisms": "OAUTHBEARER", "sasl.oauthbearer.method": "oidc"}
    with pytest.raises(ConfigError, match=r'kafka\."sasl\.oauthbearer\.method" has no counterpart'):
        connector_options(kafka)
    given = ["kafka.sasl.jaas.config=mine"]
    assert connector_options(kafka, given)["kafka.sasl.jaas.config"] == "mine"
    with pytest.raises(ConfigError, match="written KEY=VALUE"):
        connector_options(kafka, ["nothing"])


def test_a_missing_certificate_is_named(tmp_path: Path) -> None:
    kafka = {"bootstrap.servers": "a", "ssl.ca.location": str(tmp_path / "none.pem")}
    for translate in (connector_options, portable):
        with pytest.raises(ConfigError, match=r"ssl\.ca\.location.*none\.pem cannot be read"):
            translate(kafka)


def test_settings_of_the_session() -> None:
    assert parse_conf(["spark.a=b=c", "spark.d="]) == {"spark.a": "b=c", "spark.d": ""}
    for wrong in ("spark.a", "a=b"):
        with pytest.raises(ConfigError, match=r"written spark\.KEY=VALUE"):
            parse_conf([wrong])
