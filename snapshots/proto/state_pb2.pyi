from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Progress(_message.Message):
    __slots__ = ("cursor", "watermark_due_ms", "watermark_offset", "sealed_to", "number", "next_bucket", "delay_topic_id", "catching_up", "skipped", "inventory", "series_key", "cancelled", "lane", "restored_to")
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    WATERMARK_DUE_MS_FIELD_NUMBER: _ClassVar[int]
    WATERMARK_OFFSET_FIELD_NUMBER: _ClassVar[int]
    SEALED_TO_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    NEXT_BUCKET_FIELD_NUMBER: _ClassVar[int]
    DELAY_TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    CATCHING_UP_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_FIELD_NUMBER: _ClassVar[int]
    INVENTORY_FIELD_NUMBER: _ClassVar[int]
    SERIES_KEY_FIELD_NUMBER: _ClassVar[int]
    CANCELLED_FIELD_NUMBER: _ClassVar[int]
    LANE_FIELD_NUMBER: _ClassVar[int]
    RESTORED_TO_FIELD_NUMBER: _ClassVar[int]
    cursor: int
    watermark_due_ms: int
    watermark_offset: int
    sealed_to: int
    number: int
    next_bucket: int
    delay_topic_id: str
    catching_up: _containers.RepeatedCompositeFieldContainer[Behind]
    skipped: _containers.RepeatedCompositeFieldContainer[Skipped]
    inventory: Inventory
    series_key: bytes
    cancelled: int
    lane: Lane
    restored_to: int
    def __init__(self, cursor: _Optional[int] = ..., watermark_due_ms: _Optional[int] = ..., watermark_offset: _Optional[int] = ..., sealed_to: _Optional[int] = ..., number: _Optional[int] = ..., next_bucket: _Optional[int] = ..., delay_topic_id: _Optional[str] = ..., catching_up: _Optional[_Iterable[_Union[Behind, _Mapping]]] = ..., skipped: _Optional[_Iterable[_Union[Skipped, _Mapping]]] = ..., inventory: _Optional[_Union[Inventory, _Mapping]] = ..., series_key: _Optional[bytes] = ..., cancelled: _Optional[int] = ..., lane: _Optional[_Union[Lane, _Mapping]] = ..., restored_to: _Optional[int] = ...) -> None: ...

class Lane(_message.Message):
    __slots__ = ("transactional_id", "number")
    TRANSACTIONAL_ID_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    transactional_id: str
    number: int
    def __init__(self, transactional_id: _Optional[str] = ..., number: _Optional[int] = ...) -> None: ...

class Inventory(_message.Message):
    __slots__ = ("bucket_id_deltas", "held_keys", "mask_keys", "transit_keys", "query_keys", "group")
    BUCKET_ID_DELTAS_FIELD_NUMBER: _ClassVar[int]
    HELD_KEYS_FIELD_NUMBER: _ClassVar[int]
    MASK_KEYS_FIELD_NUMBER: _ClassVar[int]
    TRANSIT_KEYS_FIELD_NUMBER: _ClassVar[int]
    QUERY_KEYS_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    bucket_id_deltas: _containers.RepeatedScalarFieldContainer[int]
    held_keys: int
    mask_keys: int
    transit_keys: int
    query_keys: int
    group: str
    def __init__(self, bucket_id_deltas: _Optional[_Iterable[int]] = ..., held_keys: _Optional[int] = ..., mask_keys: _Optional[int] = ..., transit_keys: _Optional[int] = ..., query_keys: _Optional[int] = ..., group: _Optional[str] = ...) -> None: ...

class Query(_message.Message):
    __slots__ = ("offset", "where", "left")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    WHERE_FIELD_NUMBER: _ClassVar[int]
    LEFT_FIELD_NUMBER: _ClassVar[int]
    offset: int
    where: bytes
    left: int
    def __init__(self, offset: _Optional[int] = ..., where: _Optional[bytes] = ..., left: _Optional[int] = ...) -> None: ...

class Mask(_message.Message):
    __slots__ = ("number", "count", "offsets")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    number: int
    count: int
    offsets: bytes
    def __init__(self, number: _Optional[int] = ..., count: _Optional[int] = ..., offsets: _Optional[bytes] = ...) -> None: ...

class Transit(_message.Message):
    __slots__ = ("number", "part", "notes")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    NOTES_FIELD_NUMBER: _ClassVar[int]
    number: int
    part: int
    notes: _containers.RepeatedCompositeFieldContainer[InTransit]
    def __init__(self, number: _Optional[int] = ..., part: _Optional[int] = ..., notes: _Optional[_Iterable[_Union[InTransit, _Mapping]]] = ...) -> None: ...

class InTransit(_message.Message):
    __slots__ = ("offset", "due_ms", "id_hash")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    DUE_MS_FIELD_NUMBER: _ClassVar[int]
    ID_HASH_FIELD_NUMBER: _ClassVar[int]
    offset: int
    due_ms: int
    id_hash: bytes
    def __init__(self, offset: _Optional[int] = ..., due_ms: _Optional[int] = ..., id_hash: _Optional[bytes] = ...) -> None: ...

class Skipped(_message.Message):
    __slots__ = ("from_offset", "to_offset")
    FROM_OFFSET_FIELD_NUMBER: _ClassVar[int]
    TO_OFFSET_FIELD_NUMBER: _ClassVar[int]
    from_offset: int
    to_offset: int
    def __init__(self, from_offset: _Optional[int] = ..., to_offset: _Optional[int] = ...) -> None: ...

class Behind(_message.Message):
    __slots__ = ("bucket_id", "watermark_due_ms", "watermark_offset")
    BUCKET_ID_FIELD_NUMBER: _ClassVar[int]
    WATERMARK_DUE_MS_FIELD_NUMBER: _ClassVar[int]
    WATERMARK_OFFSET_FIELD_NUMBER: _ClassVar[int]
    bucket_id: int
    watermark_due_ms: int
    watermark_offset: int
    def __init__(self, bucket_id: _Optional[int] = ..., watermark_due_ms: _Optional[int] = ..., watermark_offset: _Optional[int] = ...) -> None: ...

class RuleHistory(_message.Message):
    __slots__ = ("epochs",)
    EPOCHS_FIELD_NUMBER: _ClassVar[int]
    epochs: _containers.RepeatedCompositeFieldContainer[RuleEpoch]
    def __init__(self, epochs: _Optional[_Iterable[_Union[RuleEpoch, _Mapping]]] = ...) -> None: ...

class RuleEpoch(_message.Message):
    __slots__ = ("from_offset", "rules")
    FROM_OFFSET_FIELD_NUMBER: _ClassVar[int]
    RULES_FIELD_NUMBER: _ClassVar[int]
    from_offset: int
    rules: bytes
    def __init__(self, from_offset: _Optional[int] = ..., rules: _Optional[bytes] = ...) -> None: ...

class Manifest(_message.Message):
    __slots__ = ("bucket_id", "from_offset", "to_offset", "needs_from", "first_due_deltas", "first_offsets", "last_due_deltas", "last_offsets", "entries", "sizes", "record_offset_deltas", "placements", "built_from", "target_names", "target_runs", "target_indexes", "target_counts", "due_every", "due_mark_deltas", "id_pages")
    BUCKET_ID_FIELD_NUMBER: _ClassVar[int]
    FROM_OFFSET_FIELD_NUMBER: _ClassVar[int]
    TO_OFFSET_FIELD_NUMBER: _ClassVar[int]
    NEEDS_FROM_FIELD_NUMBER: _ClassVar[int]
    FIRST_DUE_DELTAS_FIELD_NUMBER: _ClassVar[int]
    FIRST_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    LAST_DUE_DELTAS_FIELD_NUMBER: _ClassVar[int]
    LAST_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    SIZES_FIELD_NUMBER: _ClassVar[int]
    RECORD_OFFSET_DELTAS_FIELD_NUMBER: _ClassVar[int]
    PLACEMENTS_FIELD_NUMBER: _ClassVar[int]
    BUILT_FROM_FIELD_NUMBER: _ClassVar[int]
    TARGET_NAMES_FIELD_NUMBER: _ClassVar[int]
    TARGET_RUNS_FIELD_NUMBER: _ClassVar[int]
    TARGET_INDEXES_FIELD_NUMBER: _ClassVar[int]
    TARGET_COUNTS_FIELD_NUMBER: _ClassVar[int]
    DUE_EVERY_FIELD_NUMBER: _ClassVar[int]
    DUE_MARK_DELTAS_FIELD_NUMBER: _ClassVar[int]
    ID_PAGES_FIELD_NUMBER: _ClassVar[int]
    bucket_id: int
    from_offset: int
    to_offset: int
    needs_from: int
    first_due_deltas: _containers.RepeatedScalarFieldContainer[int]
    first_offsets: _containers.RepeatedScalarFieldContainer[int]
    last_due_deltas: _containers.RepeatedScalarFieldContainer[int]
    last_offsets: _containers.RepeatedScalarFieldContainer[int]
    entries: _containers.RepeatedScalarFieldContainer[int]
    sizes: _containers.RepeatedScalarFieldContainer[int]
    record_offset_deltas: _containers.RepeatedScalarFieldContainer[int]
    placements: _containers.RepeatedScalarFieldContainer[int]
    built_from: int
    target_names: _containers.RepeatedScalarFieldContainer[str]
    target_runs: _containers.RepeatedScalarFieldContainer[int]
    target_indexes: _containers.RepeatedScalarFieldContainer[int]
    target_counts: _containers.RepeatedScalarFieldContainer[int]
    due_every: _containers.RepeatedScalarFieldContainer[int]
    due_mark_deltas: _containers.RepeatedScalarFieldContainer[int]
    id_pages: IdPages
    def __init__(self, bucket_id: _Optional[int] = ..., from_offset: _Optional[int] = ..., to_offset: _Optional[int] = ..., needs_from: _Optional[int] = ..., first_due_deltas: _Optional[_Iterable[int]] = ..., first_offsets: _Optional[_Iterable[int]] = ..., last_due_deltas: _Optional[_Iterable[int]] = ..., last_offsets: _Optional[_Iterable[int]] = ..., entries: _Optional[_Iterable[int]] = ..., sizes: _Optional[_Iterable[int]] = ..., record_offset_deltas: _Optional[_Iterable[int]] = ..., placements: _Optional[_Iterable[int]] = ..., built_from: _Optional[int] = ..., target_names: _Optional[_Iterable[str]] = ..., target_runs: _Optional[_Iterable[int]] = ..., target_indexes: _Optional[_Iterable[int]] = ..., target_counts: _Optional[_Iterable[int]] = ..., due_every: _Optional[_Iterable[int]] = ..., due_mark_deltas: _Optional[_Iterable[int]] = ..., id_pages: _Optional[_Union[IdPages, _Mapping]] = ...) -> None: ...

class IdPages(_message.Message):
    __slots__ = ("first_hashes", "rows", "sizes", "record_offset_deltas")
    FIRST_HASHES_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    SIZES_FIELD_NUMBER: _ClassVar[int]
    RECORD_OFFSET_DELTAS_FIELD_NUMBER: _ClassVar[int]
    first_hashes: bytes
    rows: _containers.RepeatedScalarFieldContainer[int]
    sizes: _containers.RepeatedScalarFieldContainer[int]
    record_offset_deltas: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, first_hashes: _Optional[bytes] = ..., rows: _Optional[_Iterable[int]] = ..., sizes: _Optional[_Iterable[int]] = ..., record_offset_deltas: _Optional[_Iterable[int]] = ...) -> None: ...

class IdPage(_message.Message):
    __slots__ = ("rows", "shifted_rows")
    ROWS_FIELD_NUMBER: _ClassVar[int]
    SHIFTED_ROWS_FIELD_NUMBER: _ClassVar[int]
    rows: bytes
    shifted_rows: bytes
    def __init__(self, rows: _Optional[bytes] = ..., shifted_rows: _Optional[bytes] = ...) -> None: ...

class Ending(_message.Message):
    __slots__ = ("topic", "partition", "from_offset", "to_offset", "committed", "producer_id")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    FROM_OFFSET_FIELD_NUMBER: _ClassVar[int]
    TO_OFFSET_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    from_offset: int
    to_offset: int
    committed: bool
    producer_id: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., from_offset: _Optional[int] = ..., to_offset: _Optional[int] = ..., committed: _Optional[bool] = ..., producer_id: _Optional[int] = ...) -> None: ...
