"""The growth that the soak test reports as a leak."""

from tests.faults.usage import GROWTH_BYTES, GROWTH_COUNT, Sample, Usage

MIB = 1_048_576


def complaints(*samples: Sample) -> list[str]:
    usage = Usage()
    for sample in samples:
        usage.add("r0", 1, sample)
    return usage.complaints()


def test_what_leaks_slowly_is_named() -> None:
    (files,) = complaints(*(Sample(80 * MIB, 140 + number, 60) for number in range(120)))
    assert files == "files of r0 (pid 1) grew from 160 to 220"
    (memory,) = complaints(*(Sample((80 + 2 * number) * MIB, 139, 60) for number in range(120)))
    assert "resident_bytes of r0" in memory
    (threads,) = complaints(*(Sample(80 * MIB, 139, 60 + number) for number in range(120)))
    assert "threads of r0" in threads


def test_a_start_is_no_leak() -> None:
    assert not complaints(Sample(20 * MIB, 8, 3), *[Sample(80 * MIB, 139, 60)] * 160)


def test_partitions_of_another_that_is_away_are_no_leak() -> None:
    usual, both = Sample(80 * MIB, 139, 60), Sample(80 * MIB + GROWTH_BYTES, 139 + 2 * GROWTH_COUNT, 100)
    assert not complaints(*[usual] * 100, *[both] * 50, usual)


def test_a_short_life_says_nothing() -> None:
    assert not complaints(*(Sample(80 * MIB, 139 + 9 * number, 60) for number in range(100)))
