"""The ids of a bucket as rows and pages: a search finds exactly the ids that were stored, on any page."""

import random

import pytest

from index.named.id_pages import (
    ROW_BYTES,
    SHIFTED_ROW_BYTES,
    FoundId,
    IdPage,
    IdPageRef,
    IdRows,
    Sought,
    are_rows,
    cut_rows,
    join_rows,
    place_bytes,
    place_in,
    row,
    rows_in_order,
    rows_of,
    rows_of_a_page,
    shift_in,
)
from index.named.names import Names, hash_of
from index.named.places import HASH_BYTES
from index.pending.progress import BEFORE_ALL, Position

MOST = 2**63 - 1


@pytest.mark.parametrize("seed", range(40))
def test_what_is_found_is_what_was_put_in(seed: int) -> None:
    rng = random.Random(seed)
    names, ids = Names(), [b"id %d" % number for number in range(rng.randint(1, 30))]
    expected: dict[bytes, list[FoundId]] = {hash_of(each): [] for each in (*ids, b"nobody")}
    may_shift = rng.random() < 0.5
    for offset in range(rng.randint(1, 200)):
        shift_ms = rng.choice([0, 1, 86_399_999]) if may_shift else 0
        found = hash_of(rng.choice(ids)), Position(rng.randrange(50), offset), shift_ms
        expected[found[0]].append(found)
        names.add(*found)
    names.freeze()
    pages = list(cut_rows(rows_in_order(names.frozen, names.frozen_shifts_ms), rng.choice([1, 2, 7, 1_000])))
    assert all(map(are_rows, pages))
    assert are_rows(join_rows([each for page in pages for each in rows_of(page)]))
    assert may_shift or {page.row_bytes for page in pages} == {ROW_BYTES}
    refs = [IdPageRef(page.joined[:HASH_BYTES], page.row_count, 9, 0) for page in pages]
    sought = Sought(expected)
    found_there = [each for at, some in sought.in_pages(refs) for each in IdPage(pages[at]).find(sought, some)]
    assert found_there == sorted(each for of_id in expected.values() for each in of_id)


def test_one_id_is_looked_for_in_one_page_as_a_rule() -> None:
    hashes = sorted(hash_of(b"%d" % number) for number in range(10_000))
    refs = [IdPageRef(hashes[at], 100, 3_200, 0) for at in range(0, 10_000, 100)]
    assert sum(len(list(Sought([each]).in_pages(refs))) for each in hashes) == 10_000 + 99, (
        "the first of a page may end the one before"
    )


@pytest.mark.parametrize(
    ("rows", "of_a_page"), [(0, 1_024), (4_096_000, 1_024), (4_096_001, 1_025), (32_768_000, 8_192), (10**9, 8_192)]
)
def test_pages_become_larger_before_they_become_too_many(rows: int, of_a_page: int) -> None:
    assert rows_of_a_page(rows) == of_a_page


def test_rows_sort_as_hash_and_place_do() -> None:
    places = [Position(0, 0), Position(0, 256), Position(255, 1), Position(256, 0), Position(MOST, MOST)]
    rows = list(rows_in_order({b"\xff" * HASH_BYTES: places[::-1], b"\x00" * HASH_BYTES: Position(7, 7)}))
    assert rows == sorted(rows)
    assert list(map(place_in, rows)) == [Position(7, 7), *places]
    assert list(rows_of(join_rows(rows))) == rows


def test_only_a_page_with_a_shift_has_longer_rows_and_these_sort_alike() -> None:
    first, second = b"a" * HASH_BYTES, b"b" * HASH_BYTES
    rows = list(rows_in_order({first: [Position(4, 7), Position(6, 8)], second: Position(5, 1)}, {7: 86_399_999}))
    assert [len(each) for each in rows] == [SHIFTED_ROW_BYTES, ROW_BYTES, ROW_BYTES]
    with_shift, without = cut_rows(rows, 2)
    assert (with_shift.row_bytes, with_shift.row_count, len(with_shift.joined)) == (36, 2, 72)
    assert (without.row_bytes, without.row_count, len(without.joined)) == (32, 1, 32)
    stored = [*rows_of(with_shift), *rows_of(without)]
    assert stored == sorted(stored)
    assert [(*place_in(each), shift_in(each)) for each in stored] == [(4, 7, 86_399_999), (6, 8, 0), (5, 1, 0)]


def test_what_lies_behind_a_place_is_told_by_its_bytes() -> None:
    places = [Position(0, 0), Position(0, 9), Position(5, 0), Position(5, 1), Position(MOST, MOST)]
    rows = list(rows_in_order({b"a" * HASH_BYTES: places}))
    for watermark in (BEFORE_ALL, Position(5, -1), *places):
        behind = [place_in(each) for each in rows if each[HASH_BYTES:] > place_bytes(watermark)]
        assert behind == [place for place in places if place > watermark]


def test_what_are_no_rows() -> None:
    one, two = rows_in_order({b"a" * HASH_BYTES: Position(1, 1), b"b" * HASH_BYTES: Position(1, 2)})
    assert are_rows(IdRows(one + two))
    assert (one, two) == (row(b"a" * HASH_BYTES, 1, 1), row(b"b" * HASH_BYTES, 1, 2))
    for page in (b"", one[:-1], two + one, one + one):
        assert not are_rows(IdRows(page))
    assert not are_rows(IdRows(row(b"a" * HASH_BYTES, 1, 1, 1)))
    assert are_rows(IdRows(row(b"a" * HASH_BYTES, 1, 1, 1), SHIFTED_ROW_BYTES))


def test_two_ids_whose_hashes_begin_alike_are_told_apart() -> None:
    one, two = b"a" * 8 + b"1" * 8, b"a" * 8 + b"2" * 8
    page = IdPage(join_rows([*rows_in_order({one: Position(5, 1), two: [Position(4, 7), Position(6, 8)]})]))
    sought = Sought([two, one, b"a" * 8 + b"3" * 8])
    assert list(page.find(sought, sought.all)) == [(one, (5, 1), 0), (two, (4, 7), 0), (two, (6, 8), 0)]
