"""Hands randomly broken entries to the kernel: ``garbage.py SEED COUNT`` prints how many it has taken."""

import random
import sys
from typing import Any

from index.protocol.headers import NATIVE, StrippedNames
from index.protocol.schedule import KEEP_KEY
from sidecar.kernel.choice import Kernel
from sidecar.kernel.librdkafka import WatchedProducer

_ANYTHING: tuple[Any, ...] = (
    None, True, 0, -1, 1.5, 2**62, -(2**63), 2**63, 2**70, "", "text", "a\0b", "\ud800", "\N{SNOWMAN}" * 50, b"", b"x",
    bytearray(b"x"), (), [], {}, (None,), ("t",), [()], [("a", b"b")], object(), KEEP_KEY, AssertionError,
)  # fmt: skip


def _entry(dice: random.Random) -> Any:
    headers = [(dice.choice(["a", "deliver-at", "delay-source"]), b"1") for _ in range(dice.randrange(4))]
    schedule = (1, ("t",), -1, KEEP_KEY, None, False, -1, 0, None)
    return (dice.choice([0, 1, 2**50]), dice.randrange(2**63), (schedule, 1, (b"k", b"v", headers, 7)))


def _spoilt(dice: random.Random, node: Any) -> Any:
    """Return a copy with one part exchanged, left out or doubled, at any depth."""
    if not isinstance(node, tuple | list) or not node or dice.random() < 0.1:
        return dice.choice(_ANYTHING)
    parts = list(node)
    place = dice.randrange(len(parts))
    kind = dice.random()
    if kind < 0.1:
        del parts[place]
    elif kind < 0.2:
        parts.insert(place, dice.choice(_ANYTHING))
    else:
        parts[place] = _spoilt(dice, parts[place])
    return tuple(parts) if isinstance(node, tuple) else parts


def main(seed: int, count: int) -> None:
    """Hand over so many lists of entries."""
    dice = random.Random(seed)
    producer = WatchedProducer({"log_level": 0})
    writer = Kernel.chosen({}).writer(producer, StrippedNames(alias.name for alias in NATIVE), b"d/0/")
    assert writer is not None
    taken = left = 0
    for _ in range(count):
        entries = [_entry(dice) if dice.random() < 0.5 else _spoilt(dice, _entry(dice)) for _ in range(5)]
        for start in range(-1, len(entries) + 1):
            after, code = writer.release(entries, start, dice.choice([-1, 1, 3, 2**40]), {None: dice.randrange(3)})
            assert code == 0
            assert start <= after <= max(len(entries), start)
            taken += after - start
            left += after == start
        producer.purge()
        producer.poll(0)
    sys.stdout.write(f"taken {taken} left {left}\n")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
