from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Segment(_message.Message):
    __slots__ = ("count", "inline", "pointer")
    COUNT_FIELD_NUMBER: _ClassVar[int]
    INLINE_FIELD_NUMBER: _ClassVar[int]
    POINTER_FIELD_NUMBER: _ClassVar[int]
    count: int
    inline: InlineSegment
    pointer: PointerSegment
    def __init__(self, count: _Optional[int] = ..., inline: _Optional[_Union[InlineSegment, _Mapping]] = ..., pointer: _Optional[_Union[PointerSegment, _Mapping]] = ...) -> None: ...

class Column(_message.Message):
    __slots__ = ("present", "runs")
    PRESENT_FIELD_NUMBER: _ClassVar[int]
    RUNS_FIELD_NUMBER: _ClassVar[int]
    present: _containers.RepeatedScalarFieldContainer[bytes]
    runs: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, present: _Optional[_Iterable[bytes]] = ..., runs: _Optional[_Iterable[int]] = ...) -> None: ...

class InlineSegment(_message.Message):
    __slots__ = ("due_deltas", "offset_deltas", "record_runs", "timestamp_deltas", "keys", "values", "header_counts", "header_names", "header_indexes", "header_values")
    DUE_DELTAS_FIELD_NUMBER: _ClassVar[int]
    OFFSET_DELTAS_FIELD_NUMBER: _ClassVar[int]
    RECORD_RUNS_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_DELTAS_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    HEADER_COUNTS_FIELD_NUMBER: _ClassVar[int]
    HEADER_NAMES_FIELD_NUMBER: _ClassVar[int]
    HEADER_INDEXES_FIELD_NUMBER: _ClassVar[int]
    HEADER_VALUES_FIELD_NUMBER: _ClassVar[int]
    due_deltas: _containers.RepeatedScalarFieldContainer[int]
    offset_deltas: _containers.RepeatedScalarFieldContainer[int]
    record_runs: _containers.RepeatedScalarFieldContainer[int]
    timestamp_deltas: _containers.RepeatedScalarFieldContainer[int]
    keys: Column
    values: Column
    header_counts: _containers.RepeatedScalarFieldContainer[int]
    header_names: _containers.RepeatedScalarFieldContainer[str]
    header_indexes: _containers.RepeatedScalarFieldContainer[int]
    header_values: Column
    def __init__(self, due_deltas: _Optional[_Iterable[int]] = ..., offset_deltas: _Optional[_Iterable[int]] = ..., record_runs: _Optional[_Iterable[int]] = ..., timestamp_deltas: _Optional[_Iterable[int]] = ..., keys: _Optional[_Union[Column, _Mapping]] = ..., values: _Optional[_Union[Column, _Mapping]] = ..., header_counts: _Optional[_Iterable[int]] = ..., header_names: _Optional[_Iterable[str]] = ..., header_indexes: _Optional[_Iterable[int]] = ..., header_values: _Optional[_Union[Column, _Mapping]] = ...) -> None: ...

class PointerSegment(_message.Message):
    __slots__ = ("offsets", "due_deltas")
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    DUE_DELTAS_FIELD_NUMBER: _ClassVar[int]
    offsets: bytes
    due_deltas: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, offsets: _Optional[bytes] = ..., due_deltas: _Optional[_Iterable[int]] = ...) -> None: ...
