"""Records between deciding and writing: as rows of a segment where that can be, else as plain bytes.

A row only has to be joined with others to be a segment (:mod:`snapshots.rows`), so a record is taken to pieces once, by
the task that decides it, and nothing of it is looked at again by the task that writes it. Rows go together whose tables
of header names begin alike. What a row cannot hold, as a null value, makes its segment one of records.
"""

import json
import marshal
from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import itemgetter
from typing import TypeAlias

from index.headers import Headers
from index.record import Record
from snapshots.rows import RowPacker, unpack_rows

Packed: TypeAlias = tuple[int, str | None, bytes | None]
"""``timestamp_ms``, ``names`` and ``record`` of a decided row.

``names`` is the table of header names where the record is a row; no record: it is absent, to be read again when due.
"""

Columns: TypeAlias = tuple[list[str | None], list[bytes | None]]


def pack(
    packer: RowPacker,
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None],
    headers: Sequence[Headers],
    absent: Iterable[int],
) -> Columns:
    """Columns ``names`` and ``record`` of a batch, in which the records numbered ``absent`` are not."""
    packed, no_rows = rows_of(packer, keys, values, headers)
    return names_of(packer, packed, no_rows, absent), packed


def rows_of(
    packer: RowPacker, keys: Sequence[bytes | None], values: Sequence[bytes | None], headers: Sequence[Headers]
) -> tuple[list[bytes | None], list[int]]:
    """The row of each record, or plain bytes of one that is no row, and the numbers of those."""
    packed: list[bytes | None] = list(map(packer.pack, keys, values, headers))
    no_rows = [number for number, row in enumerate(packed) if row is None] if None in packed else []
    for number in no_rows:
        packed[number] = marshal.dumps((keys[number], values[number], list(headers[number])))
    return packed, no_rows


def names_of(
    packer: RowPacker, packed: list[bytes | None], no_rows: Iterable[int], absent: Iterable[int]
) -> list[str | None]:
    """Column ``names`` of packed records, some of which are no rows; those that are ``absent`` are taken out."""
    names: list[str | None] = [json.dumps(packer.names)] * len(packed)
    for number in no_rows:
        names[number] = None
    for number in absent:
        names[number] = packed[number] = None
    return names


def common_names(tables: Iterable[str | None]) -> list[str] | None:
    """The header names of rows with these tables; None where some are no rows, or they do not go together."""
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
    """The records themselves; None for absent ones."""
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
    # Written by our own task a stage before, by the same Python.
    key, value, headers = marshal.loads(packed)  # noqa: S302 -- see above
    return Record(key, value, headers, timestamp_ms)
