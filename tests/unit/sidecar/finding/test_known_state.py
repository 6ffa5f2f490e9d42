"""Known state: a state topic is read on from where it was read before, with the result of reading the whole log."""

from random import Random

import pytest

from index.errors import FormatError
from sidecar.finding.known_state import KnownStates, Latest
from sidecar.ports import Stored


@pytest.mark.parametrize("seed", range(50))
def test_it_is_as_if_all_of_it_were_read(seed: int) -> None:
    rng = Random(seed)
    states = KnownStates(most_bytes=rng.choice([0, 1_000, 1 << 20]))
    logs: dict[str, list[Stored]] = {"a": [], "b": []}
    for _ in range(40):
        name = rng.choice("ab")
        log = logs[name]
        for _ in range(rng.randrange(3)):
            value = rng.choice([None, b"%d" % rng.randrange(9)])
            log.append(Stored(len(log), rng.choice([b"x", b"y", b"z"]), value))
        expected: dict[bytes | None, bytes] = {}
        for _, key, stored in log:
            expected.pop(key, None)
            if stored is not None:
                expected[key] = stored
        latest = states.latest(name, lambda offset, log=log: (log[offset:], len(log)))  # type: ignore[misc]
        assert list(latest.items()) == list(expected.items())
        latest.clear()


def test_only_what_is_new_is_read() -> None:
    states = KnownStates()
    asked: list[int] = []

    def read(offset: int) -> tuple[list[Stored], int]:
        asked.append(offset)
        return [Stored(offset, b"x", b"%d" % offset)], offset + 10

    assert [states.latest("place", read)[b"x"] for _ in range(3)] == [b"0", b"10", b"20"]
    assert states.latest("another place", read) == {b"x": b"0"}
    assert asked == [0, 10, 20, 0]


def test_what_was_removed_without_a_trace_is_not_remembered_where_that_cannot_be() -> None:
    states = KnownStates()
    log = [Stored(0, b"x", b"1"), Stored(1, b"progress", b"x")]
    asked: list[int] = []

    def read(offset: int) -> tuple[list[Stored], int]:
        asked.append(offset)
        return [each for each in log if each.offset >= offset], log[-1].offset + 1

    def fold(latest: Latest) -> list[bytes]:
        """Return the keys of a state whose progress names all other keys."""
        keys = [key for key in latest if key and key != b"progress"]
        if b" ".join(keys) != latest[b"progress"]:
            raise FormatError("other keys than that")
        return keys

    assert states.folded("place", read, fold) == [b"x"]
    # The tombstone of x, at 2, was there and has been compacted away.
    log[:] = [Stored(3, b"y", b"1"), Stored(4, b"progress", b"y")]
    assert states.folded("place", read, fold) == [b"y"]
    assert asked == [0, 2, 0]
    log.append(Stored(5, b"progress", b"z"))
    for place in ("place", "another place"):
        asked.clear()
        with pytest.raises(FormatError):
            states.folded(place, read, fold)
        assert asked[-1] == 0
