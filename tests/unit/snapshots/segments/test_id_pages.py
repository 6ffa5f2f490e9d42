"""Pages of ids as they are stored: written ones are read back, and anything else is refused."""

import random
from dataclasses import replace

import pytest

from index.errors import FormatError
from index.named.id_pages import (
    MAX_PAGES,
    PAGE_ROWS,
    ROW_BYTES,
    SHIFTED_ROW_BYTES,
    IdPageRef,
    IdRows,
    join_rows,
    rows_in_order,
)
from index.named.names import hash_of
from index.named.places import HASH_BYTES, Places, Shifts
from index.pending.progress import Position
from snapshots.envelope import Kind, unwrap, wrap
from snapshots.proto import state_pb2
from snapshots.segments.id_pages import (
    IdPageWriter,
    decode_page,
    encode_page,
    encode_pages,
    id_page_key,
    parse_page,
)
from snapshots.segments.manifest import decode_manifest, encode_manifest, manifest_key, segment_key
from snapshots.show import show
from tests.support.stored import DUE_MS, MANIFEST, NAMED, forged, golden

PLACES: Places = {
    hash_of(b"order-7"): [Position(DUE_MS + 5, 4020), Position(DUE_MS, 4711)],
    hash_of(b""): Position(0, 4017),
    hash_of(b"x" * 256): Position(2**63 - 1, 2**63 - 1),
}
SHIFTS: Shifts = {4020: 5, 2**63 - 1: 86_399_999}
(PAGE,) = encode_pages(rows_in_order(PLACES), 4)
(SHIFTED,) = encode_pages(rows_in_order(PLACES, SHIFTS), 4)
KEY = manifest_key(42)


def test_golden_files() -> None:
    assert golden("ids-v1.bin") == PAGE.value
    assert parse_page(golden("ids-v1.bin")) == join_rows([*rows_in_order(PLACES)])
    assert golden("ids-shifted-v1.bin") == SHIFTED.value
    assert parse_page(golden("ids-shifted-v1.bin")) == join_rows([*rows_in_order(PLACES, SHIFTS)])
    assert decode_manifest(KEY, golden("manifest-ids-v1.bin")) == NAMED
    assert encode_manifest(NAMED) == golden("manifest-ids-v1.bin")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("ids-v1-out-of-order.bin", "page of ids of 128 bytes, which are not 1 to 8192 rows in order"),
        ("ids-v2-future.bin", r"version 2 is not known here \(known: 1\); upgrade the router"),
        ("segment-inline-v1.bin", r"holds kind 4, not IDS \(11\)"),
    ],
)
def test_a_page_that_cannot_be_trusted_is_refused(name: str, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        parse_page(golden(name))


def test_a_manifest_with_pages_that_contradict_each_other_is_refused() -> None:
    with pytest.raises(FormatError, match="pages of ids in columns that are not equally long, or over 8000"):
        decode_manifest(KEY, golden("manifest-ids-v1-fewer-hashes.bin"))
    first, second = NAMED.id_pages or ()
    for pages in (
        (second, first),
        (first._replace(first_hash=b"short"),),
        (first._replace(rows=0),),
        (first._replace(rows=PAGE_ROWS + 1),),
        (first._replace(size_bytes=-1),),
        (first._replace(record_offset=-1),),
        (first,) * (MAX_PAGES + 1),
    ):
        with pytest.raises(FormatError, match="page"):
            encode_manifest(replace(NAMED, id_pages=pages))


def test_a_manifest_tells_unknown_ids_from_none() -> None:
    for pages in (None, (), NAMED.id_pages):
        manifest = replace(MANIFEST, id_pages=pages)
        assert decode_manifest(KEY, encode_manifest(manifest)).id_pages == pages
    assert decode_manifest(KEY, golden("manifest-v1.bin")).id_pages is None


def test_the_most_pages_fit_into_a_manifest_beside_its_segments() -> None:
    page = IdPageRef(b"\xff" * HASH_BYTES, PAGE_ROWS, 262_180, 2**40)
    pages = tuple(page._replace(record_offset=2**40 + number) for number in range(MAX_PAGES))
    assert len(encode_manifest(replace(MANIFEST, id_pages=pages))) < 200_000


def test_a_page_stays_below_the_limits_of_brokers() -> None:
    for row_bytes in (ROW_BYTES, SHIFTED_ROW_BYTES):
        page = b"".join(b"%0*d" % (row_bytes, number) for number in range(PAGE_ROWS))
        assert len(encode_page(IdRows(page, row_bytes)).value) < 300_000
        with pytest.raises(FormatError, match="not 1 to 8192 rows"):
            encode_page(IdRows(page + b"9" * row_bytes, row_bytes))


def test_a_router_that_knows_no_shifts_refuses_a_page_with_some() -> None:
    """It would compare the due time for which a control asks with the shifted one. Without a page it reads segments."""
    message = state_pb2.IdPage.FromString(unwrap(Kind.IDS, SHIFTED.value))
    message.ClearField("shifted_rows")
    with pytest.raises(FormatError, match="page of ids of 0 bytes"):
        parse_page(wrap(Kind.IDS, message.SerializeToString()))


def test_the_page_that_the_manifest_names_is_read_and_no_other() -> None:
    for page in (PAGE, SHIFTED):
        assert decode_page(page.ref, page.value) == parse_page(page.value)
    for ref in (PAGE.ref._replace(rows=3), PAGE.ref._replace(first_hash=b"a" * HASH_BYTES)):
        with pytest.raises(FormatError, match="not the page of ids that the manifest names"):
            decode_page(ref, PAGE.value)
    with pytest.raises(FormatError, match="nothing that can be read at offset 77"):
        decode_page(PAGE.ref._replace(record_offset=77), None)


def test_what_is_written_is_what_the_manifest_says() -> None:
    writer = IdPageWriter(42)
    assert writer.keyed([PAGE, PAGE]) == ((id_page_key(42, 0), PAGE.value), (id_page_key(42, 1), PAGE.value))
    writer.written([PAGE, PAGE], [7, 9])
    assert writer.keyed([PAGE])[0][0] == id_page_key(42, 2) != segment_key(42, 2)
    assert writer.refs() == (PAGE.ref._replace(record_offset=7), PAGE.ref._replace(record_offset=9))
    writer = IdPageWriter(42, max_pages=1)
    writer.written([PAGE, PAGE], [7, 9])
    assert writer.refs() is None


def test_inspect_tells_what_a_page_holds() -> None:
    assert list(show(golden("ids-v1.bin")))[1:] == ["  ids          4 records with an id"]
    shown = list(show(golden("ids-v1.bin"), entries=True))
    assert f"  {hash_of(b'').hex()}  due 1970-01-01T00:00:00.000Z, offset 4017" in shown
    due = "due 2027-01-15T08:00:00.005Z, offset 4020, requested for 2027-01-15T08:00:00.000Z"
    assert f"  {hash_of(b'order-7').hex()}  {due}" in list(show(golden("ids-shifted-v1.bin"), entries=True))


def test_forged_pages_are_refused_or_in_order() -> None:
    rng = random.Random(7)
    for _ in range(600):
        try:
            page = parse_page(forged(Kind.IDS, golden(rng.choice(["ids-v1.bin", "ids-shifted-v1.bin"])), rng))
        except FormatError:
            continue
        assert encode_page(page)
    with pytest.raises(FormatError, match="page of ids"):
        parse_page(wrap(Kind.IDS, b"\xff"))


def test_an_unknown_field_does_no_harm() -> None:
    """A later version adds such a field."""
    message = state_pb2.IdPage.FromString(unwrap(Kind.IDS, PAGE.value) + b"\x78\x01")
    assert parse_page(wrap(Kind.IDS, message.SerializeToString())) == parse_page(PAGE.value)
