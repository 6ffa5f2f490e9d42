"""Many partitions share the interpreter: a thread that waits for it wakes up after each switch interval."""

import pytest

from sidecar.process.workers import switch_threads_s


@pytest.mark.parametrize(("partitions", "seconds"), [(1, 0.001), (20, 0.001), (60, 0.003), (100, 0.005), (300, 0.005)])
def test_the_switch_interval_grows_with_the_partitions_within_limits(partitions: int, seconds: float) -> None:
    assert switch_threads_s(partitions) == pytest.approx(seconds)
