"""The times at which memory is given back to the system."""

import psutil

from sidecar.process.heap import EVERY_S, WORTH_BYTES, HeapTrim, glibc_trim


class Scene:
    def __init__(self) -> None:
        self.used_bytes = 0
        self.is_merging = False
        self.now_s = 100.0
        self.trimmed = 0
        self.served = 0
        self.heap = HeapTrim(
            lambda: self.used_bytes, lambda: self.is_merging, lambda: self.served, self._trim, lambda: self.now_s
        )

    def _trim(self) -> None:
        self.trimmed += 1

    def at(self, used_bytes: int, after_s: float = EVERY_S) -> int:
        """Set the memory in use, let time pass, and return how often memory was given back by then."""
        self.used_bytes = used_bytes
        self.now_s += after_s
        self.heap.trim_if_worth()
        return self.trimmed


def test_memory_is_given_back_once_when_much_has_left() -> None:
    scene = Scene()
    assert scene.at(3 * WORTH_BYTES) == 0
    assert scene.at(2 * WORTH_BYTES + 1) == 0
    assert scene.at(2 * WORTH_BYTES) == 1
    assert scene.at(WORTH_BYTES + 1) == 1
    assert scene.at(WORTH_BYTES) == 2
    assert scene.at(0) == 3
    assert scene.at(0) == 3


def test_while_records_come_and_go_it_is_kept_for_the_next() -> None:
    scene = Scene()
    scene.at(3 * WORTH_BYTES)
    assert scene.at(0) == 1
    for _ in range(9):
        scene.at(3 * WORTH_BYTES, EVERY_S / 20)
        assert scene.at(0, EVERY_S / 20) == 1
    assert scene.at(0, EVERY_S / 5) == 2


def test_memory_is_given_back_when_merging_has_ended() -> None:
    scene = Scene()
    scene.is_merging = True
    assert scene.at(0) == 0
    scene.is_merging = False
    assert scene.at(0, after_s=0) == 1
    assert scene.at(0) == 1
    scene.is_merging = True
    # Memory of released records is given back at once, and memory of the merge at its end.
    scene.at(WORTH_BYTES)
    assert scene.at(0) == 2
    scene.is_merging = False
    assert scene.at(0) == 3


def test_memory_is_given_back_when_partitions_have_been_taken_over() -> None:
    scene = Scene()
    scene.served = 2
    assert scene.at(0, EVERY_S / 2) == 0
    scene.served = 3
    assert scene.at(0, EVERY_S / 2) == 1
    assert scene.at(0) == 1
    scene.served = 2
    assert scene.at(0) == 1
    scene.served = 3
    assert scene.at(0) == 2


def test_trimming_needs_no_particular_allocator() -> None:
    trim = glibc_trim()
    trim()
    assert psutil.Process().is_running()
