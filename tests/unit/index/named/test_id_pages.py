"""The ids of a bucket as rows and pages: a search finds exactly the ids that were stored, on any page."""

import random

import pytest

from index.named.id_pages import (
    ROW_BYTES,
    IdPage,
    IdPageRef,
    Sought,
    are_rows,
    cut_rows,
    place_bytes,
    place_in,
    rows_in_order,
    rows_of,
)
from index.named.id_runs import HASH_BYTES
from index.named.names import Names, hash_of
from index.pending.progress import BEFORE_ALL, Position

MOST = 2**63 - 1


@pytest.mark.parametrize("seed", range(40))
def test_what_is_found_is_what_was_put_in(seed: int) -> None:
    rng = random.Random(seed)
    names, ids = Names(), [b"id %d" % number for number in range(rng.randint(1, 30))]
    for offset in range(rng.randint(1, 200)):
        names.add(hash_of(rng.choice(ids)), Position(rng.randrange(50), offset))
    expected = {each: sorted(names.find(hash_of(each))) for each in (*ids, b"nobody")}
    names.freeze()
    pages = list(cut_rows(rows_in_order(names.frozen), rng.choice([1, 2, 7, 1_000])))
    assert all(map(are_rows, pages))
    assert are_rows(b"".join(pages))
    refs = [IdPageRef(page[:HASH_BYTES], len(page) // ROW_BYTES, len(page), 0) for page in pages]
    found: dict[bytes, list[Position]] = {hash_of(each): [] for each in expected}
    sought = Sought(found)
    for number, numbers in sought.in_pages(refs):
        for id_hash, place in IdPage(pages[number]).find(sought, numbers):
            found[id_hash].append(place)
    assert {each: found[hash_of(each)] for each in expected} == expected


def test_one_id_is_looked_for_in_one_page_as_a_rule() -> None:
    hashes = sorted(hash_of(b"%d" % number) for number in range(10_000))
    refs = [IdPageRef(hashes[at], 100, 3_200, 0) for at in range(0, 10_000, 100)]
    assert sum(len(list(Sought([each]).in_pages(refs))) for each in hashes) == 10_000 + 99, (
        "the first of a page may end the one before"
    )


def test_rows_sort_as_hash_and_place_do() -> None:
    places = [Position(0, 0), Position(0, 256), Position(255, 1), Position(256, 0), Position(MOST, MOST)]
    rows = list(rows_in_order({b"\xff" * HASH_BYTES: places[::-1], b"\x00" * HASH_BYTES: Position(7, 7)}))
    assert rows == sorted(rows)
    assert list(map(place_in, rows)) == [Position(7, 7), *places]
    assert list(rows_of(b"".join(rows))) == rows


def test_what_lies_behind_a_place_is_told_by_its_bytes() -> None:
    places = [Position(0, 0), Position(0, 9), Position(5, 0), Position(5, 1), Position(MOST, MOST)]
    rows = list(rows_in_order({b"a" * HASH_BYTES: places}))
    for watermark in (BEFORE_ALL, Position(5, -1), *places):
        behind = [place_in(row) for row in rows if row[HASH_BYTES:] > place_bytes(watermark)]
        assert behind == [place for place in places if place > watermark]


def test_what_are_no_rows() -> None:
    one, two = rows_in_order({b"a" * HASH_BYTES: Position(1, 1), b"b" * HASH_BYTES: Position(1, 2)})
    assert are_rows(one + two)
    for page in (b"", one[:-1], two + one, one + one):
        assert not are_rows(page)


def test_two_ids_whose_hashes_begin_alike_are_told_apart() -> None:
    one, two = b"a" * 8 + b"1" * 8, b"a" * 8 + b"2" * 8
    page = IdPage(b"".join(rows_in_order({one: Position(5, 1), two: [Position(4, 7), Position(6, 8)]})))
    sought = Sought([two, one, b"a" * 8 + b"3" * 8])
    assert list(page.find(sought, range(3))) == [(one, (5, 1)), (two, (4, 7)), (two, (6, 8))]
