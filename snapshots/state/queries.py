"""Queries in the state topic (:mod:`index.named.queries`): a record for each predicate in force.

The key names the control. The value is written again whenever cancelled schedules leave their places, and removed when
nothing in front of the control can be pending. A predicate with a field that is not known here comes from a newer
router, so it is refused: a router that ignored it would release schedules that were cancelled.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from google.protobuf.message import DecodeError

from index.errors import FormatError
from index.named.queries import MOST_QUERIES, Queries, Query
from index.protocol.where import parse_where
from snapshots.envelope import Kind, key_text, unwrap, wrap
from snapshots.offsets import MAX_OFFSET
from snapshots.proto import state_pb2

QUERY_PREFIX: Final = b"query/"


def query_key(offset: int) -> bytes:
    """Key of the query of the control at an offset."""
    return b"%b%020d" % (QUERY_PREFIX, offset)


def query_records(queries: Queries) -> Iterator[tuple[bytes, bytes | None]]:
    """Yield a record of the state topic for each query that a transaction writes, a tombstone for a forgotten one."""
    for query in queries.changes():
        yield query_key(query.offset), encode_query(query)
    for offset in queries.leaving:
        yield query_key(offset), None


def encode_query(query: Query) -> bytes:
    """Value of one query."""
    message = state_pb2.Query(offset=query.offset, where=query.where.canonical(), left=query.left)
    return wrap(Kind.QUERY, message.SerializeToString())


def decode_queries(stored: Iterable[tuple[bytes, bytes]]) -> tuple[Query, ...]:
    """Decode all queries of a partition, by offset; FormatError names the fault."""
    found: list[Query] = []
    for key, value in stored:
        try:
            query = parse_query(value)
        except FormatError as error:
            raise FormatError(f"record {key_text(key)} of the state topic: {error}") from error
        if key != query_key(query.offset):
            raise FormatError(f"record {key_text(key)} of the state topic is about the control at {query.offset}")
        found.append(query)
    if len(found) > MOST_QUERIES:
        raise FormatError(f"{len(found)} queries are in force, and there may be {MOST_QUERIES}; upgrade the router")
    return tuple(sorted(found))


def parse_query(stored: bytes) -> Query:
    """Decode one query; FormatError on anything else."""
    message = state_pb2.Query()
    try:
        message.ParseFromString(unwrap(Kind.QUERY, stored))
    except DecodeError as error:
        raise FormatError(str(error)) from error
    if not 0 <= message.offset <= MAX_OFFSET or message.left < 0:
        raise FormatError(f"a query at offset {message.offset} cannot have {message.left} schedules left")
    try:
        where = parse_where(message.where)
    except ValueError as error:
        raise FormatError(f"its predicate is not known here: {error}; upgrade the router") from error
    if where.canonical() != message.where:
        raise FormatError("its predicate is not in the form that this program writes; it may be damaged")
    return Query(message.offset, where, message.left)
