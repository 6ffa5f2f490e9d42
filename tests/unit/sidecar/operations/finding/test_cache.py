"""A state, a manifest and a page of ids are read again only where they may have changed."""

from collections.abc import Iterable
from random import Random

import pytest

from index.buckets.bucket import Manifest
from index.errors import FormatError
from sidecar.engine.ports import Stored
from sidecar.operations.finding.cache import States
from snapshots.segments.manifest import encode_manifest, manifest_key
from snapshots.state.state import ManifestOf
from tests.support.manifests import manifest

Items = Iterable[tuple[bytes | None, bytes | None]]


def items_of(items: Items, _: ManifestOf) -> list[tuple[bytes | None, bytes | None]]:
    return list(items)


@pytest.mark.parametrize("seed", range(50))
def test_a_state_is_as_if_all_of_it_were_read(seed: int) -> None:
    rng = Random(seed)
    states = States(most_bytes=rng.choice([0, 1_000, 1 << 20]))
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
        found = states.folded(name, lambda offset, log=log: (log[offset:], len(log)), items_of)  # type: ignore[misc]
        assert found == list(expected.items())


def test_only_what_is_new_is_read() -> None:
    states = States()
    asked: list[int] = []

    def read(offset: int) -> tuple[list[Stored], int]:
        asked.append(offset)
        return [Stored(offset, b"x", b"%d" % offset)], offset + 10

    assert [states.folded("place", read, items_of) for _ in range(3)] == [
        [(b"x", each)] for each in (b"0", b"10", b"20")
    ]
    assert states.folded("another place", read, items_of) == [(b"x", b"0")]
    assert asked == [0, 10, 20, 0]


def test_a_key_that_was_removed_without_a_trace_is_read_away() -> None:
    states = States()
    log = [Stored(0, b"x", b"1"), Stored(1, b"progress", b"x")]
    asked: list[int] = []

    def read(offset: int) -> tuple[list[Stored], int]:
        asked.append(offset)
        return [each for each in log if each.offset >= offset], log[-1].offset + 1

    def fold(items: Items, _: ManifestOf) -> list[bytes]:
        """As a state whose progress tells which other keys there are."""
        latest = dict(items)
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


ONE, OTHER = manifest(1, [(10, 1), (20, 2)]), manifest(1, [(10, 1), (30, 2)])


class Partition:
    """A state partition of manifests, to which a test writes."""

    def __init__(self, most_bytes: int = 1 << 20) -> None:
        self.states = States(most_bytes)
        self.log: list[Stored] = []

    def write(self, key: int, value: Manifest) -> None:
        self.log.append(Stored(len(self.log), manifest_key(key), encode_manifest(value)))

    def manifests(self, place: str = "place") -> list[Manifest]:
        def fold(items: Items, decode: ManifestOf) -> list[Manifest]:
            return [decode(key or b"", value or b"") for key, value in items]

        return self.states.folded(place, lambda offset: (self.log[offset:], len(self.log)), fold)


def test_a_manifest_is_decoded_once_for_as_long_as_its_state_is_known() -> None:
    partition = Partition()
    partition.write(1, ONE)
    (found,) = partition.manifests()
    assert found == ONE
    partition.write(2, manifest(2, [(10, 1)]))
    assert partition.manifests()[0] is found
    partition = Partition(most_bytes=0)
    partition.write(1, ONE)
    (found,) = partition.manifests()
    partition.manifests("another place")
    assert partition.manifests()[0] is not found


def test_another_value_of_its_key_is_another_manifest() -> None:
    partition, found = Partition(), list[Manifest]()
    for each in (ONE, OTHER, ONE):
        partition.write(1, each)
        found += partition.manifests()
    assert found == [ONE, OTHER, ONE]


def test_a_manifest_under_another_key_is_refused_each_time() -> None:
    partition = Partition()
    partition.write(1, ONE)
    partition.manifests()
    partition.write(2, ONE)
    for _ in range(2):
        with pytest.raises(FormatError, match="holds the manifest of bucket 1"):
            partition.manifests()
