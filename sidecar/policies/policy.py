"""A policy: what may be set while the router runs, for one target topic, one delay topic, or all of them.

A policy is one record of the policies topic; its key names the scope, its value is JSON::

    key                     value
    default                 {"version": 1, "max_delay": "7d"}
    topic/orders.delay      {"version": 1, "allowed_targets": ["orders", "billing.*"], "paused": false}
    target/billing          {"version": 1, "max_delay": "1h", "expire_after": "10m"}

A null value removes the policy. Keys that are absent are not set here: the next less specific scope decides (see
:mod:`sidecar.policies.table`). Keys are closed, and each is only taken where it means something.

Decision: plain JSON with a version. The policies topic is for people as much as for the router: what lies in it is read
with any console consumer, kept in a repository, and can be put right with a console producer when the router is down.
Rejected: the envelope of the state topics (:mod:`snapshots.envelope`). Its checksum guards bytes that nobody can judge
by looking; here each batch has the brokers' checksum, which is always verified, and what cannot be understood is
reported, not trusted.
"""

import json
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, Final, Literal, NamedTuple

from pydantic import Field, StrictBool, ValidationError

from index.errors import ConfigError, FormatError
from index.targets import illegal_topic
from sidecar.config.delay_topic import DAY_MS, Section
from sidecar.config.problems import lines_of
from sidecar.config.units import Count, DurationMs, InstantMs, SizeBytes, format_duration, format_instant, format_size
from sidecar.config.value_types import OptionalTopicName, Reason, TargetPattern

VERSION: Final = 1
MAX_POLICY_BYTES: Final = 65_536
"""Of one value; nobody writes more than this by mistake of a few keys."""

PAUSE_TERMS: Final = ("paused_until", "paused_reason")
"""Keys that say something of the pause in the same policy."""

_VERSION_KEY: Final = "version"


class ScopeKind(StrEnum):
    """What a policy is about, the most specific last."""

    DEFAULT = "default"
    TOPIC = "topic"
    TARGET = "target"


class Scope(NamedTuple):
    """Where a policy holds; ``name`` is that of the delay or target topic."""

    kind: ScopeKind
    name: str = ""

    def __str__(self) -> str:
        return self.kind.value if self.kind is ScopeKind.DEFAULT else f"{self.kind.value}/{self.name}"

    @property
    def key(self) -> bytes:
        """Key of its record."""
        return str(self).encode()

    @classmethod
    def parse(cls, text: str) -> "Scope":
        """Read ``default``, ``topic/NAME`` or ``target/NAME``; ConfigError on anything else."""
        kind, slash, name = text.partition("/")
        if text == ScopeKind.DEFAULT.value:
            return DEFAULT
        if kind not in (ScopeKind.TOPIC.value, ScopeKind.TARGET.value) or not slash:
            raise ConfigError(f"policy {text!r}: no such scope; write default, topic/NAME or target/NAME")
        if problem := illegal_topic(name):
            raise ConfigError(f"policy {text!r}: {name!r} is no topic name: {problem}")
        return cls(ScopeKind(kind), name)


DEFAULT: Final = Scope(ScopeKind.DEFAULT)


def topic_scope(name: str) -> Scope:
    """The scope of one delay topic."""
    return Scope(ScopeKind.TOPIC, name)


def target_scope(name: str) -> Scope:
    """The scope of one target topic, whichever delay topic its records come from."""
    return Scope(ScopeKind.TARGET, name)


class Policy(Section):
    """Values set in one scope; None is not set."""

    enabled: StrictBool | None = Field(
        None, description="While false, records that come in are treated as when_disabled."
    )
    when_disabled: Literal["reject", "release"] | None = Field(
        None, description="reject: with DELAY_DISABLED; release: at once, without waiting for their due time."
    )
    max_delay_ms: DurationMs | None = Field(None, alias="max_delay", description='Longest delay; "0": no limit.')
    tick_ms: DurationMs | None = Field(None, alias="tick", le=10_000, description="As router.tick.")
    default_target: OptionalTopicName | None = Field(None, description="Target of records without deliver-to.")
    allowed_targets: tuple[TargetPattern, ...] | None = Field(None, description="Topics that deliver-to may name.")
    delay_ms: DurationMs | None = Field(
        None, alias="delay", description='How long a record waits that names no time; "0": it is released at once.'
    )
    spread_ms: DurationMs | None = Field(
        None,
        alias="spread",
        le=DAY_MS,
        description='Records due at one instant leave evenly over this span behind it; "0": as soon as they are due.',
    )
    require_time: StrictBool | None = Field(None, description="As in the configuration.")
    unknown_headers: Literal["reject", "ignore"] | None = Field(None, description="As in the configuration.")
    placement: Literal["inline", "pointer", "auto"] | None = Field(None, description="As in the configuration.")
    timestamp: Literal["release", "due", "source"] | None = Field(None, description="As in the configuration.")
    expire_after_ms: DurationMs | None = Field(
        None, alias="expire_after", description='Released later than this after its due time: EXPIRED; "0": no limit.'
    )
    paused: StrictBool | None = Field(
        None, description="While true nothing is released; what comes in is still indexed."
    )
    paused_until_ms: InstantMs | None = Field(
        None,
        alias="paused_until",
        description="When the pause of this policy ends by itself, an RFC 3339 instant.",
    )
    paused_reason: Reason | None = Field(None, description="Why this policy pauses; shown in the status.")
    records_per_second: Count | None = Field(
        None,
        ge=0,
        le=10_000_000,
        description="Most records a second to a target, from all routers together; 0: no limit.",
    )
    bytes_per_second: SizeBytes | None = Field(
        None, description='Most payload a second to a target, from all routers together; "0": no limit.'
    )
    drained: StrictBool | None = Field(
        None, description="While true no partition is served: sealed, committed and given up by its worker."
    )


KEYS: Final = {field.alias or name: name for name, field in Policy.model_fields.items()}
"""Names in JSON, and the attribute of each."""

_RATES_ELSEWHERE: Final = dict.fromkeys(
    ("records_per_second", "bytes_per_second"), "a rate is what one target takes; set it for target/NAME"
)
_ELSEWHERE: Final[Mapping[ScopeKind, Mapping[str, str]]] = {
    ScopeKind.DEFAULT: {
        "default_target": "it belongs to one delay topic; set it for topic/NAME",
        "allowed_targets": "they belong to one delay topic; set them for topic/NAME",
        "delay": "it belongs to one delay topic; set it for topic/NAME",
        **_RATES_ELSEWHERE,
    },
    ScopeKind.TOPIC: _RATES_ELSEWHERE,
    ScopeKind.TARGET: dict.fromkeys(
        (
            "when_disabled",
            "tick",
            "default_target",
            "allowed_targets",
            "delay",
            "require_time",
            "unknown_headers",
            "placement",
            "drained",
        ),
        "it belongs to a delay topic, not to a target; set it for topic/NAME",
    ),
}
"""Keys that mean nothing in a scope, with the remedy."""


def keys_in(kind: ScopeKind) -> tuple[str, ...]:
    """Keys that mean something in a scope of this kind."""
    return tuple(key for key in KEYS if key not in _ELSEWHERE[kind])


def policy_of(scope: Scope, values: Mapping[str, object]) -> Policy:
    """The policy with these values, as JSON spells them; ConfigError naming scope, key and remedy."""
    try:
        policy = Policy.model_validate(dict(values))
    except ValidationError as error:
        lines = [f"policy {scope}: {line}" for line in lines_of(error, Policy)]
        raise ConfigError("\n".join(lines)) from None
    misplaced = [
        f"policy {scope}: {key}: {_ELSEWHERE[scope.kind][key]}"
        for key in plain_of(policy)
        if key in _ELSEWHERE[scope.kind]
    ]
    if misplaced:
        raise ConfigError("\n".join(misplaced))
    return policy


def plain_of(policy: Policy) -> dict[str, Any]:
    """The values that are set, as JSON spells them."""
    return {key: _spelled(name, value) for key, name in KEYS.items() if (value := getattr(policy, name)) is not None}


def encode(policy: Policy) -> bytes:
    """Value of the policy's record."""
    return json.dumps({_VERSION_KEY: VERSION, **plain_of(policy)}, indent=1).encode()


def decode(key: bytes | None, value: bytes | None) -> tuple[Scope, Policy | None]:
    """Scope and policy of a record, None for one that removes it; FormatError when either cannot be understood."""
    scope = scope_of(key)
    if value is None:
        return scope, None
    if len(value) > MAX_POLICY_BYTES:
        raise FormatError(f"{len(value)} bytes are over the cap of {MAX_POLICY_BYTES}")
    try:
        plain = json.loads(value)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"not readable as JSON: {error}") from None
    if not isinstance(plain, dict):
        raise FormatError("not a JSON object")
    version = plain.pop(_VERSION_KEY, None)
    if type(version) is not int or version != VERSION:
        raise FormatError(f"version {version!r} is not known here (known: {VERSION}); is it of a newer router?")
    try:
        return scope, policy_of(scope, plain)
    except ConfigError as error:
        raise FormatError(str(error)) from None


def scope_of(key: bytes | None) -> Scope:
    """Scope of a record by its key; FormatError when it has none."""
    try:
        return Scope.parse((key or b"").decode("ascii"))
    except (UnicodeDecodeError, ConfigError) as error:
        raise FormatError(f"key {key!r} names no scope: {error}") from None


def changed(scope: Scope, policy: Policy, values: Mapping[str, object], unset: Iterable[str] = ()) -> Policy:
    """The policy with some values set and others unset, and what was said of a pause gone with it; ConfigError as of
    ``policy_of``.
    """
    unknown = [key for key in unset if key not in KEYS]
    if unknown:
        raise ConfigError(f"policy {scope}: {unknown[0]}: unknown key; known are {', '.join(KEYS)}")
    plain = {key: value for key, value in plain_of(policy).items() if key not in set(unset)}
    plain |= values
    if plain.get("paused") is not True:
        plain = {key: value for key, value in plain.items() if key not in PAUSE_TERMS or key in values}
    return policy_of(scope, plain)


def _spelled(name: str, value: object) -> object:
    if name == "paused_until_ms" and isinstance(value, int):
        return format_instant(value)
    if name.endswith("_ms") and isinstance(value, int):
        return format_duration(value)
    if name == "bytes_per_second" and isinstance(value, int):
        return format_size(value)
    return list(value) if isinstance(value, tuple) else value
