"""PartitionIndex, checked against the statement it implements, on a list of records (tests.support.partition_twin)."""

import random

import pytest

from tests.support.partition_twin import Twin


@pytest.mark.parametrize("seed", range(80))
def test_random_operations_against_the_statement(seed: int) -> None:
    twin = Twin(random.Random(seed))
    for _ in range(120):
        match twin.rng.choice(["append", "append", "read", "read", "release", "clock", "crash"]):
            case "append":
                twin.append()
            case "read":
                twin.read(twin.rng.choice([1, 5, 10_000]))
            case "release":
                twin.release()
            case "clock":
                twin.now_ms = max(0, twin.now_ms + twin.rng.randint(-40, 60))
            case "crash":
                twin.crash()
    twin.drain()
