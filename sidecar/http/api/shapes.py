"""Shapes of the requests and answers of policies and switches; :mod:`sidecar.operations.status.answers` has those of
questions.

Every change must be sent as JSON: no form of a web page can send that by itself.
"""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Annotated, Any, Final

from fastapi import Depends, Request
from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema
from starlette.convertors import PathConvertor, register_url_convertor

from index.protocol.times import parse_number
from index.rules.retrying import MAX_ATTEMPTS
from index.rules.targets import illegal_topic
from sidecar.config.units import InstantMs
from sidecar.config.value_types import Reason
from sidecar.http.api.bodies import JSON
from sidecar.http.problems import Refusal
from sidecar.http.tokens import Role
from sidecar.operations.status.answers import Answer
from sidecar.policies.origin import ChangeOrigin
from sidecar.policies.policy import (
    KEYS,
    Policy,
    Scope,
    ScopeKind,
    keys_in,
    target_scope,
    topic_scope,
)

_TOPIC: Final = r"(?!\.{1,2}$)[a-zA-Z0-9._-]{1,249}"
# The schema covers values up to about ten thousand days and a petabyte; larger ones are taken, too, but have no use.
# Answers spell a value with the largest unit that divides it, so each unit goes as far as the smaller ones.
_DURATION: Final[dict[str, Any]] = {
    "type": "string",
    "pattern": "^(0|[0-9]{1,12}ms|[0-9]{1,9}s|[0-9]{1,7}m|[1-6]?[0-9]{1,5}h|[12]?[0-9]{1,4}d)$",
    "examples": ["500ms", "10s", "7d"],
}
_POSITIVE_DURATION: Final = {**_DURATION, "pattern": _DURATION["pattern"].replace("^(0|", "^(?!0+[a-z])(")}
_SIZE: Final = {
    "type": "string",
    "pattern": "^(0|[0-9]{1,15}B|[0-9]{1,12}KiB|[0-9]{1,9}MiB|[0-9]{1,6}GiB)$",
    "examples": ["64KiB", "10MiB"],
}
_DAY: Final = (
    "([2-8][0-9]{3}-((0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])|(0[13-9]|1[0-2])-(29|30)|(0[13578]|1[02])-31)"
    "|[2-8][0-9](0[48]|[2468][048]|[13579][26])-02-29)"
)
_TIME: Final = "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]([.][0-9]{1,3})?(Z|[+-]0[0-9]:[0-5][0-9])"
_INSTANT: Final = {
    "type": "string",
    "pattern": f"^{_DAY}T{_TIME}$",
    "examples": ["2030-01-31T08:00:00Z"],
}
_RETRY: Final = {
    "type": "object",
    "additionalProperties": False,
    "required": ["attempts"],
    "properties": {
        "first": _POSITIVE_DURATION,
        "factor": {"type": "number", "minimum": 1, "maximum": 100},
        "max": _POSITIVE_DURATION,
        "jitter": {"type": "number", "minimum": 0, "maximum": 1},
        "attempts": {"type": "integer", "minimum": 0, "maximum": MAX_ATTEMPTS},
        "dead_letter": {"type": "string", "pattern": f"^({_TOPIC})?$"},
    },
    "anyOf": [
        {"properties": {"attempts": {"const": 0}}},
        {"required": ["dead_letter"], "properties": {"dead_letter": {"minLength": 1}}},
    ],
    "examples": [{"first": "1s", "factor": 2, "max": "1h", "attempts": 8, "dead_letter": "orders.dlq"}],
}
_SPELLED: Final[Mapping[str, dict[str, Any]]] = {
    "max_delay": _DURATION,
    "delay": _DURATION,
    "spread": {
        "type": "string",
        "pattern": "^(0|([0-9]{1,7}|[1-7][0-9]{7}|8[0-5][0-9]{6}|86[0-3][0-9]{5}|86400000)ms"
        "|([0-9]{1,4}|[1-7][0-9]{4}|8[0-5][0-9]{3}|86[0-3][0-9]{2}|86400)s"
        "|([0-9]{1,3}|1[0-3][0-9]{2}|14[0-3][0-9]|1440)m|(1?[0-9]|2[0-4])h|[01]d)$",
        "examples": ["30s"],
    },
    "retry": _RETRY,
    "expire_after": _DURATION,
    "tick": {"type": "string", "pattern": "^(0|[0-9]{1,4}ms|[0-9]s|10s)$", "examples": ["10ms"]},
    "paused_until": _INSTANT,
    "records_per_second": {"type": "integer", "minimum": 0, "maximum": 10_000_000},
    "bytes_per_second": _SIZE,
    "default_target": {"type": "string", "pattern": f"^({_TOPIC})?$"},
    "allowed_targets": {
        "type": "array",
        "items": {"type": "string", "pattern": r"^(?!__)[a-zA-Z0-9._*-]{1,249}$", "examples": ["billing.*"]},
    },
}
"""Schemas of keys whose written form has a unit or a syntax that the model, which holds plain values, does not show."""


def _refuse_other_types(request: Request) -> None:
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != JSON:
        raise Refusal(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"send Content-Type: {JSON}")


JSON_ONLY: Final = [Depends(_refuse_other_types)]
"""Value of ``dependencies`` for every path that takes a body."""


def policy_schema(kind: ScopeKind | None, *, null_unsets: bool = False) -> dict[str, Any]:
    """Return the closed JSON schema of a policy of a kind of scope, as people write it; None stands for any kind."""
    keys = tuple(KEYS) if kind is None else keys_in(kind)
    plain = Policy.model_json_schema(by_alias=True)["properties"]
    properties = {key: _property(key, plain[key], null_unsets=null_unsets) for key in keys}
    schema = {"type": "object", "additionalProperties": False, "properties": properties}
    return schema if kind is None else {**schema, "minProperties": 1}


def _property(key: str, plain: dict[str, Any], *, null_unsets: bool) -> dict[str, Any]:
    (said,) = (each for each in plain["anyOf"] if each.get("type") != "null")
    value = _SPELLED.get(key, said)
    described = {"description": plain["description"]}
    return {**described, "anyOf": [value, {"type": "null"}]} if null_unsets else {**described, **value}


def _ascii_number(raw: object) -> object:
    """Read a number of ASCII digits; ``int`` also takes digits of other scripts, signs, spaces and underscores."""
    return parse_number(raw.encode("utf-8", "replace")) if isinstance(raw, str) else raw


def _topic_name(name: str) -> str:
    if problem := illegal_topic(name):
        raise ValueError(problem)
    return name


def _number(most: int) -> WithJsonSchema:
    return WithJsonSchema({"type": "integer", "minimum": 0, "maximum": most})


TopicName = Annotated[
    str,
    AfterValidator(_topic_name),
    WithJsonSchema({"type": "string", "pattern": f"^{_TOPIC}$", "examples": ["orders.delay"]}),
]


def scope_of_topic(topic: TopicName) -> Scope:
    """Return the scope of a path with a ``{topic}``."""
    return topic_scope(topic)


def scope_of_target(target: TopicName) -> Scope:
    """Return the scope of a path with a ``{target}``."""
    return target_scope(target)


Partition = Annotated[int, BeforeValidator(_ascii_number), Field(le=2**31 - 1), _number(2**31 - 1)]
Offset = Annotated[int, BeforeValidator(_ascii_number), _number(2**63 - 1)]


def _origin(request: Request) -> ChangeOrigin:
    caller, client = request.state.caller, request.client
    return ChangeOrigin(f"token {caller.name} ({caller.role})", "admin API", client.host if client else "")


Changer = Annotated[ChangeOrigin, Depends(_origin)]
"""Origin in whose name a request changes something."""

Id = Annotated[str, Field(min_length=1, max_length=512)]


class _IdInPath(PathConvertor):
    """End of a path ``{id:id}``: every character, since an id may hold slashes and line ends.

    Starlette's own ``path`` cuts off a line end, so that ``DELETE .../schedules/7%0A`` would cancel the schedule ``7``.
    """

    regex = "(?s:.*)"


register_url_convertor("id", _IdInPath())

MillisecondsText = Annotated[str, Field(pattern=r"^[0-9]{1,16}$", description="Milliseconds since 1970")]
"""Milliseconds in a query, as digits only: a JSON number could also be spelled 30.0. ``milliseconds`` reads it."""

DueMsText = Annotated[str, Field(pattern=r"^(0|[1-9][0-9]{0,8}|[1-9][0-9]{11,13})$")]
"""Milliseconds of a due time that goes into a header, where a number with the digits of another unit is refused."""


def _due_ms(given: object) -> object:
    """Return a JSON number that cannot be mistaken for seconds or microseconds; raise ValueError for any other."""
    number = given if isinstance(given, int | float) and not isinstance(given, bool) else -1
    if not any(least <= number <= most for least, most in _DUE_MS):
        raise ValueError("milliseconds since 1970 are needed, and no other unit")
    return given


_DUE_MS: Final = ((0, 999_999_999), (100_000_000_000, 99_999_999_999_999))
"""Ranges of the numbers that DueMsText allows."""

DueMs = Annotated[
    int,
    BeforeValidator(_due_ms),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": least, "maximum": most} for least, most in _DUE_MS]}),
]

Values = Annotated[dict[str, Any], WithJsonSchema(policy_schema(None))]


def milliseconds(text: str | None) -> int | None:
    """Return a MillisecondsText as a number; None where it was left out."""
    return None if text is None else int(text)


class PolicyAnswer(Answer):
    """The settings of one scope."""

    scope: str = Field(description="default, topic/NAME or target/NAME")
    values: Values


class PoliciesAnswer(Answer):
    """All policies."""

    policies: dict[str, Values] = Field(description="Settings by scope")
    unreadable: dict[str, str] = Field(
        description="Policies that cannot be understood, with the reason; the last good one of each still holds"
    )


class PolicyChangeAnswer(Answer):
    """One change of a policy."""

    scope: str
    at_ms: int = Field(description="Milliseconds since 1970, by the record's timestamp")
    values: Values | None = Field(description="All settings from then on; null: the policy was removed")
    by: str = Field(description="The token, as the log names it, or the user of a command; empty: not known")
    through: str = Field(description="Way of the change: admin API or command")
    address: str = Field(description="Address of the caller, or host of the command")


class PolicyChangesAnswer(Answer):
    """Changes that the policies topic still has."""

    changes: tuple[PolicyChangeAnswer, ...] = Field(description="The newest first, 200 at most")


class Effective(Answer):
    """A value in force."""

    value: Annotated[Any, WithJsonSchema({"type": ["string", "boolean", "integer", "array", "object"]})]
    origin: str = Field(description="The scope that sets it, or configuration")
    is_default: bool = Field(description="No policy sets it, and the configuration leaves it at its default")


class EffectiveAnswer(Answer):
    """The settings in force for a delay topic, or for a target of it."""

    topic: str
    target: str = ""
    values: dict[str, Effective]


class SwitchAnswer(Answer):
    """The switch as it is set; routers follow within a second, and status says when they have."""

    scope: str
    key: str
    value: bool


class CallerAnswer(Answer):
    """The caller."""

    role: Role
    sees_payload: bool = Field(description="True: it may see keys of records, and look for one")
    token: str = Field(description="First 8 hex digits of the token's SHA-256, as the log names it")
    topic_link: str = Field(description="Address of a {topic} in another console; empty: none is configured")
    record_link: str = Field(description="The same of a record, by {topic}, {partition} and {offset}")


class BrokersAnswer(Answer):
    """Silence or presence of the brokers, as this router hears them."""

    answering: bool
    silent_since_ms: int | None = Field(description="Time of their last answer; null while they answer")
    detail: str = Field(description="Time since their last answer, and its consequence; empty while they answer")


class Nothing(Answer):
    """An empty object."""


class PauseTerms(Answer):
    """End and reason of a pause; an empty object: until somebody resumes."""

    until: Annotated[InstantMs, WithJsonSchema(_INSTANT)] | None = Field(
        None, description="Time when the pause ends by itself"
    )
    reason: Reason | None = Field(None, description="Reason, which status shows")


class Confirmation(Answer):
    """The name of the topic once more."""

    confirm: str = Field(max_length=249)
