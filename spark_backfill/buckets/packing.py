"""Records between deciding and writing: rows of a segment where possible, else plain bytes.

A segment is joined from rows without a look at them (:mod:`snapshots.segments.rows`). So the task that decides a record
takes it to pieces once, and the task that writes it does not look inside again. Rows go together if their tables of
header names begin alike. A record that a row cannot hold, such as one with a null value, turns its segment into one of
records.
"""

import json
import marshal
from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import itemgetter
from typing import TypeAlias

from index.protocol.headers import Headers
from index.protocol.record import Record
from snapshots.segments.rows import RowPacker, unpack_rows

Packed: TypeAlias = tuple[int, str | None, bytes | None]
"""``timestamp_ms``, ``names`` and ``record`` of a decided row.

``names`` is the table of header names where the record is a row. Without ``record`` it is absent, to be read again when
due.
"""

Columns: TypeAlias = tuple[list[str | None], list[bytes | None]]


def pack(
    packer: RowPacker,
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None],
    headers: Sequence[Headers],
    absent: Iterable[int],
) -> Columns:
    """Pack the columns ``names`` and ``record`` of a batch; the records numbered ``absent`` are left out."""
    packed, no_rows = rows_of(packer, keys, values, headers)
    return names_of(packer, packed, no_rows, absent), packed


def rows_of(
    packer: RowPacker, keys: Sequence[bytes | None], values: Sequence[bytes | None], headers: Sequence[Headers]
) -> tuple[list[bytes | None], list[int]]:
    """Return the row of each record, or plain bytes where it cannot be a row, and the numbers of the latter."""
    packed: list[bytes | None] = list(map(packer.pack, keys, values, headers))
    no_rows = [number for number, row in enumerate(packed) if row is None] if None in packed else []
    for number in no_rows:
        packed[number] = marshal.dumps((keys[number], values[number], list(headers[number])))
    return packed, no_rows


def names_of(
    packer: RowPacker, packed: list[bytes | None], no_rows: Iterable[int], absent: Iterable[int]
) -> list[str | None]:
    """Return the column ``names`` of packed records, some of which are no rows; ``absent`` records are removed."""
    names: list[str | None] = [json.dumps(packer.names)] * len(packed)
    for number in no_rows:
        names[number] = None
    for number in absent:
        names[number] = packed[number] = None
    return names


def common_names(tables: Iterable[str | None]) -> list[str] | None:
    """Return the header names of rows with these tables; None where some are no rows, or they do not go together."""
    known = []
    for each in tables:
        if each is None:
            return None
        # Nearly always there is one table: headers of a topic have the same names.
        known.append(json.loads(each))
    known.sort(key=len)
    longest: list[str] = known[-1]
    return None if any(longest[: len(each)] != each for each in known) else longest


def records(entries: Iterable[Packed]) -> list[Record | None]:
    """Unpack the records; None for absent ones."""
    found: list[Record | None] = []
    for names, run in groupby(entries, key=itemgetter(1)):
        if names is None:
            found += [_plain(timestamp_ms, packed) for timestamp_ms, _, packed in run]
        else:
            timestamps_ms, _, rows = zip(*run, strict=True)
            found += unpack_rows(timestamps_ms, rows, json.loads(names))
    return found


def _plain(timestamp_ms: int, packed: bytes | None) -> Record | None:
    if packed is None:
        return None
    # The same Python wrote it in our own task a stage before.
    key, value, headers = marshal.loads(packed)  # noqa: S302 -- see above
    return Record(key, value, headers, timestamp_ms)
