"""PartitionIndex with buckets, checked against the statement of test_partition_model.py (tests.support.bucket_twin)."""

import random
from collections import Counter
from functools import cache

import pytest

from tests.support.bucket_twin import TwinWithBuckets

SEEDS = range(60, 120)
"""Enough seeds that every operation happens at least once."""


@cache
def play(seed: int) -> Counter[str]:
    twin = TwinWithBuckets(random.Random(seed))
    operations = {
        twin.append: 4,
        twin.freeze: 3,
        twin.write: 12,
        twin.release: 4,
        twin.load: 2,
        twin.merge: 2,
        twin.remove: 1,
        twin.fail: 0.2,
        twin.crash: 0.2,
    }
    return twin.play(operations, [1, 5, 10_000])


@pytest.mark.parametrize("seed", SEEDS)
def test_random_operations_with_buckets(seed: int) -> None:
    play(seed)


def test_every_operation_happens() -> None:
    done: Counter[str] = sum((play(seed) for seed in SEEDS), Counter())
    expected = {"frozen", "sealed", "thawed", "nothing left to seal", "loaded", "dropped as known", "merged", "removed"}
    assert expected <= set(done), done
