from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Progress(_message.Message):
    __slots__ = ("cursor", "watermark_due_ms", "watermark_offset", "sealed_to", "number", "delay_topic_id")
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    WATERMARK_DUE_MS_FIELD_NUMBER: _ClassVar[int]
    WATERMARK_OFFSET_FIELD_NUMBER: _ClassVar[int]
    SEALED_TO_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    DELAY_TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    cursor: int
    watermark_due_ms: int
    watermark_offset: int
    sealed_to: int
    number: int
    delay_topic_id: str
    def __init__(self, cursor: _Optional[int] = ..., watermark_due_ms: _Optional[int] = ..., watermark_offset: _Optional[int] = ..., sealed_to: _Optional[int] = ..., number: _Optional[int] = ..., delay_topic_id: _Optional[str] = ...) -> None: ...

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
