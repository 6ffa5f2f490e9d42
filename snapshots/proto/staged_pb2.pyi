from snapshots.proto import state_pb2 as _state_pb2
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Staged(_message.Message):
    __slots__ = ("job", "delay_topic_id", "rules", "manifest", "restores")
    JOB_FIELD_NUMBER: _ClassVar[int]
    DELAY_TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    RULES_FIELD_NUMBER: _ClassVar[int]
    MANIFEST_FIELD_NUMBER: _ClassVar[int]
    RESTORES_FIELD_NUMBER: _ClassVar[int]
    job: str
    delay_topic_id: str
    rules: bytes
    manifest: _state_pb2.Manifest
    restores: bool
    def __init__(self, job: _Optional[str] = ..., delay_topic_id: _Optional[str] = ..., rules: _Optional[bytes] = ..., manifest: _Optional[_Union[_state_pb2.Manifest, _Mapping]] = ..., restores: _Optional[bool] = ...) -> None: ...

class Intent(_message.Message):
    __slots__ = ("job", "snapshots_from", "expires_ms")
    JOB_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOTS_FROM_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_MS_FIELD_NUMBER: _ClassVar[int]
    job: str
    snapshots_from: int
    expires_ms: int
    def __init__(self, job: _Optional[str] = ..., snapshots_from: _Optional[int] = ..., expires_ms: _Optional[int] = ...) -> None: ...
