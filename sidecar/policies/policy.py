"""A policy: settings that may change while the router runs, for one target topic, one delay topic, or all of them.

A policy is one record of the policies topic. Its key names the scope, and its value is JSON::

    key                     value
    default                 {"version": 1, "max_delay": "7d"}
    topic/orders.delay      {"version": 1, "allowed_targets": ["orders", "billing.*"], "paused": false}
    target/billing          {"version": 1, "max_delay": "1h", "expire_after": "10m"}

A null value removes the policy. The next less specific scope decides about an absent key (see
:mod:`sidecar.policies.table`). Unknown keys are refused, and each key is only taken in scopes in which it means
something.

Decision: plain JSON with a version. The policies topic is for people as much as for the router: any console consumer
reads a policy, a repository can keep it, and a console producer can mend it while the router is down.

Rejected: the envelope of the state topics (:mod:`snapshots.envelope`). Its checksum guards bytes that people cannot
judge by a look. Here each batch has the checksum of the brokers, which is always verified, and a policy that cannot be
understood is reported, not trusted.
"""

import json
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, Final, Literal, NamedTuple

from pydantic import Field, StrictBool, ValidationError

from index.errors import ConfigError, FormatError
from index.rules.targets import illegal_topic
from sidecar.config.delay_topic import DAY_MS
from sidecar.config.problems import lines_of
from sidecar.config.retry import RetryConfig
from sidecar.config.section import Section
from sidecar.config.units import Count, DurationMs, InstantMs, SizeBytes, format_duration, format_instant, format_size
from sidecar.config.value_types import OptionalTopicName, Reason, TargetPattern

VERSION: Final = 1
MAX_POLICY_BYTES: Final = 65_536
"""The most bytes of one value; a mistake in a few keys does not reach it."""

PAUSE_TERMS: Final = ("paused_until", "paused_reason")
"""The keys about the pause in the same policy."""

_VERSION_KEY: Final = "version"


class ScopeKind(StrEnum):
    """The kind of a scope, the most specific last."""

    DEFAULT = "default"
    TOPIC = "topic"
    TARGET = "target"


class Scope(NamedTuple):
    """The scope of a policy; ``name`` is the name of the delay topic or target topic."""

    kind: ScopeKind
    name: str = ""

    def __str__(self) -> str:
        return self.kind.value if self.kind is ScopeKind.DEFAULT else f"{self.kind.value}/{self.name}"

    @property
    def key(self) -> bytes:
        """The key of the record of its policy."""
        return str(self).encode()

    @classmethod
    def parse(cls, text: str) -> "Scope":
        """Read ``default``, ``topic/NAME`` or ``target/NAME``; raise ConfigError for any other text."""
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
    """Return the scope of one delay topic."""
    return Scope(ScopeKind.TOPIC, name)


def target_scope(name: str) -> Scope:
    """Return the scope of one target topic, for records of all delay topics."""
    return Scope(ScopeKind.TARGET, name)


class Policy(Section):
    """The values of one scope; None means not set."""

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
        None, alias="delay", description='Delay of records that name no time; "0": they are released at once.'
    )
    spread_ms: DurationMs | None = Field(
        None,
        alias="spread",
        le=DAY_MS,
        description='Records due at one instant leave evenly over this span after it; "0": as soon as they are due.',
    )
    retry: RetryConfig | None = Field(
        None, description="As in the configuration, all keys together; attempts 0: attempts are not counted."
    )
    require_time: StrictBool | None = Field(None, description="As in the configuration.")
    unknown_headers: Literal["reject", "ignore"] | None = Field(None, description="As in the configuration.")
    placement: Literal["inline", "pointer", "auto"] | None = Field(None, description="As in the configuration.")
    timestamp: Literal["release", "due", "source"] | None = Field(None, description="As in the configuration.")
    expire_after_ms: DurationMs | None = Field(
        None,
        alias="expire_after",
        description='Reject records later than this after their due time, with EXPIRED; "0": no limit.',
    )
    paused: StrictBool | None = Field(
        None, description="While true nothing is released; new records are still indexed."
    )
    paused_until_ms: InstantMs | None = Field(
        None,
        alias="paused_until",
        description="Instant at which the pause of this policy ends by itself, in RFC 3339.",
    )
    paused_reason: Reason | None = Field(None, description="Reason of the pause; shown in the status.")
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
        None, description="While true no partition is served: its worker seals it, commits and gives it up."
    )


KEYS: Final = {field.alias or name: name for name, field in Policy.model_fields.items()}
"""The attributes of a policy by their names in JSON."""

_RATES_ELSEWHERE: Final = dict.fromkeys(
    ("records_per_second", "bytes_per_second"), "a rate is a limit of one target; set it for target/NAME"
)
_ELSEWHERE: Final[Mapping[ScopeKind, Mapping[str, str]]] = {
    ScopeKind.DEFAULT: {
        "default_target": "it belongs to one delay topic; set it for topic/NAME",
        "allowed_targets": "they belong to one delay topic; set them for topic/NAME",
        "delay": "it belongs to one delay topic; set it for topic/NAME",
        "retry": "it belongs to one delay topic; set it for topic/NAME",
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
            "retry",
            "require_time",
            "unknown_headers",
            "placement",
            "drained",
        ),
        "it belongs to a delay topic, not to a target; set it for topic/NAME",
    ),
}
"""The keys that mean nothing in a scope of a kind, with the remedy."""


def keys_in(kind: ScopeKind) -> tuple[str, ...]:
    """Return the keys that mean something in a scope of this kind."""
    return tuple(key for key in KEYS if key not in _ELSEWHERE[kind])


def policy_of(scope: Scope, values: Mapping[str, object]) -> Policy:
    """Return the policy with these values, spelled as in JSON; raise ConfigError with scope, key and remedy."""
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
    """Return the values that are set, spelled as in JSON."""
    return {key: _spelled(name, value) for key, name in KEYS.items() if (value := getattr(policy, name)) is not None}


def encode(policy: Policy) -> bytes:
    """Return the value of the record of a policy."""
    return json.dumps({_VERSION_KEY: VERSION, **plain_of(policy)}, indent=1).encode()


def decode(key: bytes | None, value: bytes | None) -> tuple[Scope, Policy | None]:
    """Return the scope and the policy of a record; the policy is None if the record removes it.

    Raise FormatError if either cannot be understood.
    """
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
    """Return the scope that the key of a record names; raise FormatError if it names none."""
    try:
        return Scope.parse((key or b"").decode("ascii"))
    except (UnicodeDecodeError, ConfigError) as error:
        raise FormatError(f"key {key!r} names no scope: {error}") from None


def changed(scope: Scope, policy: Policy, values: Mapping[str, object], unset: Iterable[str] = ()) -> Policy:
    """Return the policy with some values set and others unset; raise ConfigError as ``policy_of`` does.

    If the policy does not pause afterwards, the earlier end and reason of its pause are unset, too.
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
    if isinstance(value, RetryConfig):
        return value.spelled()
    if name == "paused_until_ms" and isinstance(value, int):
        return format_instant(value)
    if name.endswith("_ms") and isinstance(value, int):
        return format_duration(value)
    if name == "bytes_per_second" and isinstance(value, int):
        return format_size(value)
    return list(value) if isinstance(value, tuple) else value
