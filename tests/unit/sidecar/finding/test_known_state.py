"""What was read of a state topic before is not read again, and what is left is what the whole log leaves."""

from random import Random

import pytest

from sidecar.finding.known_state import KnownStates
from sidecar.kafka.compacted import Stored


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
