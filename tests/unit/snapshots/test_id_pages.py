"""Pages of ids: what is found in them is what was written, whatever page it lies in, and anything else is refused."""

import random

import pytest

from index.errors import FormatError
from index.names import Names, hash_of
from index.progress import Position
from snapshots.envelope import Kind
from snapshots.id_pages import decode_page, encode_pages, id_page_key, pages_of, places_in
from snapshots.show import show
from tests.support.stored import DUE_MS, forged, golden

NAMED = sorted(
    [
        (hash_of(b"order-7"), Position(DUE_MS, 4711)),
        (hash_of(b"order-7"), Position(DUE_MS + 5, 4020)),
        (hash_of(b""), Position(0, 4017)),
        (hash_of(b"x" * 256), Position(2**63 - 1, 2**63 - 1)),
    ]
)


def test_golden_file() -> None:
    assert decode_page(id_page_key(42, 0), golden("ids-v1.bin")) == NAMED
    assert [tuple(page) for page in encode_pages(42, NAMED)] == [(NAMED[0][0], golden("ids-v1.bin"))]


def test_inspect_tells_what_a_page_holds() -> None:
    assert list(show(golden("ids-v1.bin")))[1:] == ["  ids          page 0 of bucket 42, 4 records with an id"]
    assert f"  {hash_of(b'').hex()}  due " in "\n".join(show(golden("ids-v1.bin"), entries=True))


@pytest.mark.parametrize("seed", range(40))
def test_what_is_found_is_what_was_written(seed: int) -> None:
    rng = random.Random(seed)
    names, ids = Names(), [b"id %d" % number for number in range(rng.randint(1, 30))]
    for offset in range(rng.randint(1, 200)):
        names.add(hash_of(rng.choice(ids)), Position(rng.randrange(50), offset))
    names.check()
    bucket = range(rng.randrange(50), 200)
    found_all = [(hash_of(each), place) for each in ids for place in names.find(hash_of(each))]
    named = sorted((id_hash, place) for id_hash, place in found_all if place.offset in bucket)
    pages = list(encode_pages(3, named, rng.choice([1, 2, 7, 1_000])))
    fences = [page.fence for page in pages]
    for each in (*ids, b"nobody"):
        found: list[Position] = []
        for number in pages_of(hash_of(each), fences):
            found += places_in(decode_page(id_page_key(3, number), pages[number].value), hash_of(each))
        assert found == sorted(place for place in names.find(hash_of(each)) if place.offset in bucket)


def test_another_page_and_forged_ones_are_refused() -> None:
    with pytest.raises(FormatError, match="holds page 0 of bucket 42"):
        decode_page(id_page_key(42, 1), golden("ids-v1.bin"))
    rng = random.Random(7)
    for _ in range(300):
        try:
            named = decode_page(id_page_key(42, 0), forged(Kind.IDS, golden("ids-v1.bin"), rng))
        except FormatError:
            continue
        assert named == sorted(set(named))
