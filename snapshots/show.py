"""Stored values in words, for a person, as ``python -m snapshots inspect`` prints them.

Everything that came from outside is escaped, so that a key or a header cannot write to a terminal.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, TypeVar

from google.protobuf.message import DecodeError, Message

from index.buckets.bucket import Manifest, SegmentRef
from index.errors import FormatError
from index.named.id_pages import IdPageRef, IdRows, place_in, rows_of, shift_in
from index.named.places import HASH_BYTES
from snapshots.envelope import VERSION, Kind, kind_of, unwrap
from snapshots.proto import state_pb2
from snapshots.segments.id_pages import id_page_key, parse_page
from snapshots.segments.manifest import manifest_key, parse_manifest, segment_key
from snapshots.segments.segment import StoredEntry, decode_segment, parse_segment
from snapshots.state.inventory import inventory_of
from snapshots.state.mask import parse_mask
from snapshots.state.queries import parse_query
from snapshots.state.staged import StagedBucket, intent_key, parse_intent, parse_staged, staged_key
from snapshots.state.transit import parse_transit

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SHOWN_BYTES = 40
_PARTS_OF = {
    Kind.HELD: "a record that waits for its target",
    Kind.ENDING: "a forgotten transaction that an operator is ending",
}
_M = TypeVar("_M", bound=Message)


def show(stored: bytes, *, entries: bool = False) -> Iterator[str]:
    """Yield lines that describe a stored value of any kind; FormatError when it cannot be trusted.

    ``entries`` adds a line for each entry of a segment, and for each segment of a manifest, staged or not.
    """
    kind = kind_of(stored)
    body = unwrap(kind, stored)
    yield f"{kind.name.lower()}, format version {VERSION}, {_count(len(stored), 'byte')}, checksum correct"
    if kind in (Kind.PROGRESS, Kind.PROGRESS_IN_LANE):
        yield from _show_progress(_parsed(state_pb2.Progress(), body))
    elif kind is Kind.RULES:
        yield from _show_rules(_parsed(state_pb2.RuleHistory(), body))
    elif kind is Kind.MANIFEST:
        yield from _show_manifest(parse_manifest(stored), segments=entries)
    elif kind is Kind.STAGED:
        yield from _show_staged(parse_staged(stored), segments=entries)
    elif kind is Kind.IDS:
        yield from _show_ids(parse_page(stored), rows=entries)
    elif kind in _SMALL:
        yield from _SMALL[kind](stored)
    elif kind in _PARTS_OF:
        yield _line(kind.name.lower(), f"a part of {_PARTS_OF[kind]}, {_count(len(body), 'byte')}")
    else:
        yield from _show_segment(stored, entries=entries)


def _parsed(message: _M, body: bytes) -> _M:
    try:
        message.ParseFromString(body)
    except DecodeError as error:
        raise FormatError(str(error)) from error
    return message


def _show_progress(message: state_pb2.Progress) -> Iterator[str]:
    yield _line("cursor", f"C = {message.cursor}: every record below this offset is indexed")
    watermark = f"{_instant(message.watermark_due_ms)}, offset {message.watermark_offset}"
    yield _line("watermark", f"W = {watermark if message.watermark_due_ms >= 0 else 'nothing released yet'}")
    again = _count(message.cursor - message.sealed_to, "offset")
    yield _line("sealed to", f"S = {message.sealed_to}: a restart reads [S, C) again, {again}")
    yield _line("number", f"transaction {message.number} of the partition")
    yield _line("delay topic", f"id {message.delay_topic_id!a}")
    if message.HasField("lane"):
        yield _line(
            "lane", f"{message.lane.transactional_id!a}, producer {message.lane.number}: it alone may write here"
        )
    for behind in message.catching_up:
        at = f"{_instant(behind.watermark_due_ms)}, offset {behind.watermark_offset}"
        released = at if behind.watermark_due_ms >= 0 else "nothing of it released yet"
        yield _line("catching up", f"adopted bucket {behind.bucket_id}: {released}")
    for skipped in message.skipped:
        yield _line("skipped", f"[{skipped.from_offset}, {skipped.to_offset}): rejected as one, could not be read")
    if message.HasField("inventory"):
        ids, held_keys, mask_keys, transit_keys, query_keys, group = inventory_of(message.inventory)
        if group:
            yield _line("group", f"{group!a}: its routers wrote this")
        yield _line("buckets", " ".join(map(str, ids)) or "none")
        yield _line("held", f"{_count(held_keys, 'record')} of this topic: the records held for their targets")
        if mask_keys:
            yield _line("mask", f"{_count(mask_keys, 'record')} of this topic: the offsets of cancelled records")
        if transit_keys:
            yield _line("in transit", f"{_count(transit_keys, 'record')} of this topic: appended records, not read yet")
        if query_keys:
            yield _line("queries", f"{_count(query_keys, 'record')} of this topic: predicates that cancel schedules")


def _show_mask(stored: bytes) -> Iterator[str]:
    offsets = parse_mask(stored)
    yield _line("cancelled", f"{_count(len(offsets), 'record')} from offset {offsets.min()} to {offsets.max()}")


def _show_ids(page: IdRows, *, rows: bool) -> Iterator[str]:
    yield _line("ids", f"{_count(page.row_count, 'record')} with an id")
    for row in rows_of(page) if rows else ():
        due_ms, offset = place_in(row)
        asked = f", requested for {_instant(due_ms - shift_ms)}" if (shift_ms := shift_in(row)) else ""
        yield f"  {row[:HASH_BYTES].hex()}  due {_instant(due_ms)}, offset {offset}{asked}"


def _show_transit(stored: bytes) -> Iterator[str]:
    lot, notes = parse_transit(stored)
    yield _line("appended by", f"transaction {lot[0]} of the partition")
    for (due_ms, offset), id_hash in notes:
        yield _line(f"at {offset}", f"due {_instant(due_ms)}, id hash {id_hash.hex()}")


def _show_query(stored: bytes) -> Iterator[str]:
    query = parse_query(stored)
    yield _line("where", ascii(query.where.canonical().decode())[1:-1])
    yield _line("cancelled", f"schedules in front of offset {query.offset}, about {query.left:,} still in their places")


def _show_rules(message: state_pb2.RuleHistory) -> Iterator[str]:
    for epoch in message.epochs:
        yield _line(f"from {epoch.from_offset}", ascii(epoch.rules.decode(errors="backslashreplace"))[1:-1])


def _show_manifest(manifest: Manifest, *, segments: bool) -> Iterator[str]:
    yield _line("bucket", f"{manifest.bucket_id}, key {manifest_key(manifest.bucket_id).decode()}")
    yield from _show_bucket(manifest)
    for number, segment in enumerate(manifest.segments if segments else ()):
        yield f"  {segment_key(manifest.bucket_id, number).decode()}  {_segment(segment)}"
    for number, page in enumerate((manifest.id_pages or ()) if segments else ()):
        yield f"  {id_page_key(manifest.bucket_id, number).decode()}  {_page(page)}"


def _show_staged(staged: StagedBucket, *, segments: bool) -> Iterator[str]:
    manifest = staged.manifest
    yield _line("waits", f"to be adopted, key {staged_key(staged.job, manifest.from_offset).decode()}")
    yield _line("restores", "only for a partition whose state is gone" if staged.restores else "no")
    yield _line("delay topic", f"id {staged.delay_topic_id!a}")
    yield _line("rules", ascii(staged.rules.to_json().decode())[1:-1])
    yield from _show_bucket(manifest)
    for number, segment in enumerate(manifest.segments if segments else ()):
        yield f"  {number:06}  {_segment(segment)}"
    for number, page in enumerate((manifest.id_pages or ()) if segments else ()):
        yield f"  id/{number:06}  {_page(page)}"


def _show_intent(stored: bytes) -> Iterator[str]:
    intent = parse_intent(stored)
    yield _line("job", f"{intent.run} writes segments, key {intent_key(intent.run).decode()}")
    yield _line("keeps", f"the snapshots topic from offset {intent.snapshots_from} on")
    yield _line("expires", _instant(intent.expires_ms))


def _show_bucket(manifest: Manifest) -> Iterator[str]:
    yield _line("offsets", f"[{manifest.from_offset}, {manifest.to_offset}) of the delay topic")
    if manifest.built_from is not None:
        yield _line("adopted", f"built from offset {manifest.built_from} on; the bucket has no records before it")
    if not manifest.segments:
        yield _line("entries", "none: nothing of these offsets is pending")
        return
    bytes_in_all = sum(segment.size_bytes for segment in manifest.segments)
    needs = "none: every record is here" if manifest.needs_from is None else f"from offset {manifest.needs_from} on"
    yield _line("pointers", needs)
    yield _line("due", _span(manifest.segments[0].first.due_ms, manifest.last.due_ms))
    yield _line("entries", f"{manifest.entries:,} in {_count(len(manifest.segments), 'segment')}")
    yield _line("size", f"{_count(bytes_in_all, 'byte')}, {bytes_in_all / manifest.entries:.1f} per entry")
    yield _line("ids", _ids(manifest.id_pages))


def _ids(pages: Sequence[IdPageRef] | None) -> str:
    if pages is None:
        return "nobody has written which ids its records have"
    if not pages:
        return "none"
    size = _count(sum(page.size_bytes for page in pages), "byte")
    return f"of {_count(sum(page.rows for page in pages), 'record')} in {_count(len(pages), 'page')}, {size}"


def _page(page: IdPageRef) -> str:
    size = f"{_count(page.rows, 'row')}  {_count(page.size_bytes, 'byte')}"
    return f"record offset {page.record_offset}  ids      {size}  from {page.first_hash.hex()}"


def _segment(segment: SegmentRef) -> str:
    return (
        f"record offset {segment.record_offset}"
        f"  {segment.placement.name.lower():7}  {_count(segment.entries, 'entry')}"
        f"  {_count(segment.size_bytes, 'byte')}"
        f"  {_instant(segment.first.due_ms)} {segment.first.offset} to"
        f" {_instant(segment.last.due_ms)} {segment.last.offset}"
    )


def _show_segment(stored: bytes, *, entries: bool) -> Iterator[str]:
    found = decode_segment(stored)
    placement = parse_segment(stored).WhichOneof("payload")
    offsets = [offset for _, offset, _ in found]
    absent = sum(record is None for _, _, record in found)
    yield _line("placement", str(placement))
    missing = f", {absent} of them absent: too big, in the delay topic" if absent and placement == "inline" else ""
    yield _line("entries", f"{len(found):,}{missing}")
    yield _line("due", _span(found[0][0], found[-1][0]))
    yield _line("offsets", f"{min(offsets)} to {max(offsets)} of the delay topic")
    yield _line("size", f"{len(stored) / len(found):.1f} bytes per entry")
    if entries:
        yield from map(_show_entry, found)


def _show_entry(entry: StoredEntry) -> str:
    due_ms, offset, record = entry
    where = f"  {_instant(due_ms)}  offset {offset}"
    if record is None:
        return f"{where}  record in the delay topic"
    headers = " ".join(f"{name!a}={_shortened(value)}" for name, value in record.headers)
    return (
        f"{where}  written {_instant(record.timestamp_ms)}"
        f"  key {_shortened(record.key)}  value {_shortened(record.value)}  headers {headers or 'none'}"
    )


def _show_claim(_: bytes) -> Iterator[str]:
    yield _line("claim", "routers of the group in the key may write the state")


def _shortened(value: bytes | None) -> str:
    if value is None:
        return "null"
    more = f"... ({_count(len(value), 'byte')})" if len(value) > _SHOWN_BYTES else ""
    return f"{value[:_SHOWN_BYTES]!r}{more}"


def _span(first_ms: int, last_ms: int) -> str:
    return f"{_instant(first_ms)} to {_instant(last_ms)} ({first_ms} to {last_ms} ms)"


def _instant(time_ms: int) -> str:
    try:
        return (_EPOCH + timedelta(milliseconds=time_ms)).strftime("%Y-%m-%dT%H:%M:%S.") + f"{time_ms % 1000:03}Z"
    except OverflowError:
        return f"{time_ms} ms"


def _count(number: int, thing: str) -> str:
    if number == 1:
        return f"1 {thing}"
    return f"{number:,} {thing.removesuffix('y') + 'ies' if thing.endswith('y') else thing + 's'}"


def _line(name: str, text: str) -> str:
    return f"  {name:12} {text}"


_SMALL: Final[Mapping[Kind, Callable[[bytes], Iterator[str]]]] = {
    Kind.INTENT: _show_intent,
    Kind.MASK: _show_mask,
    Kind.TRANSIT: _show_transit,
    Kind.QUERY: _show_query,
    Kind.CLAIM: _show_claim,
}
"""Kinds whose values are shown as a whole."""
