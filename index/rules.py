"""What becomes of a record in a delay topic: a schedule, or a rejection with its reason.

``Rules.decide`` looks at the record's headers and timestamp and at nothing else: no clock, no cluster, no
memory of other records. What is indexed but not sealed is decided again after every restart and must come out
the same; so the rules in force are kept in the state (``to_json``), each set with the offsets it applies to.

Everything that is wrong with a record is found, and the first of this order becomes its reason:

==  ====================  ==============================================================================
1   AMBIGUOUS_HEADER      a role given twice (an alias counts as its role), or the same target named twice
2   INVALID_SCHEDULE      a control header that cannot be read (``deliver-after`` too, where ``deliver-at``
                          outranks it), a due time over 64 bits, or no timestamp to count a delay from
3   UNIT_SUSPECTED        a ``deliver-at`` number that only makes sense in another unit
4   MAX_DELAY_EXCEEDED    due time - record timestamp is over ``max_delay_ms`` (PIP-315)
5   TARGET_MISSING        no target in the record and no default target
6   TARGET_NOT_ALLOWED    a target that is no topic name, can never be one, or is not on the allow-list
7   DELAY_DISABLED        a target that is switched off (a delay topic that is rejects everything so, at once)
==  ====================  ==============================================================================

The other codes are given later, by what only the cluster knows. A record with neither time header is due at
once: its due time is ``AT_ONCE`` (0) and not its timestamp, because a producer's clock may run up to an hour
ahead of the broker's (KIP-1030) and such a record would wait. ``deliver-at: 0`` is the same as no time.
"""

import json
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from index.errors import FormatError
from index.headers import (
    Alias,
    Headers,
    Reader,
    Role,
    StrippedNames,
    UnitSuspectedError,
    quoted,
    reader,
    with_natives,
)
from index.rules_stored import fields_of, plain_of, refuse_unknown
from index.schedule import AT_ONCE, BY_KEY, KEEP_KEY, NO_EXPIRY, KeepKey, Reason, Rejection, Schedule
from index.target_rules import TargetRule, TargetRules
from index.targets import TargetPolicy, illegal_topic
from index.times import INT64_MAX

__all__ = [
    "AT_ONCE",
    "BY_KEY",
    "KEEP_KEY",
    "RULES_VERSION",
    "KeepKey",
    "Reason",
    "Rejection",
    "Rules",
    "Schedule",
    "TargetRule",
]

RULES_VERSION: Final = 2
"""Raise it whenever a change of code changes a decision. Older versions are decided by as they were, for as long as
records need them (:data:`index.rules_stored.KNOWN_VERSIONS`); any other is refused, never guessed."""

_KNOWS_EXPIRY: Final = 2

_ORDER: Final = (
    Reason.AMBIGUOUS_HEADER,
    Reason.INVALID_SCHEDULE,
    Reason.UNIT_SUSPECTED,
    Reason.MAX_DELAY_EXCEEDED,
    Reason.TARGET_MISSING,
    Reason.TARGET_NOT_ALLOWED,
    Reason.DELAY_DISABLED,
)

# Producers choose the names of targets, so what is remembered of them is bounded: at most 16 MiB when every
# name is as long as Kafka allows and every record goes to 16 of them; in practice a few kB.
_MAX_ROUTES: Final = 4096
_MAX_REMEMBERED_FAN_OUT: Final = 16

_SLOTS: Final = (Role.AT, Role.AFTER, Role.PARTITION, Role.KEY, Role.ID, Role.EXPIRE, Role.KIND, Role.REFUSED)
_ABSENT: Final[list[Any]] = [None, None, BY_KEY, KEEP_KEY, None, NO_EXPIRY, None, None]
_KEY_SLOT: Final = _SLOTS.index(Role.KEY)
_AT_BIT: Final = 1 << _SLOTS.index(Role.AT)
_AFTER_BIT: Final = 1 << _SLOTS.index(Role.AFTER)
_BOTH_TIMES: Final = _AT_BIT | _AFTER_BIT

_Control: TypeAlias = tuple[int, int, Reader | None]
"""How one header name is taken in: its slot among the values found, the bit that marks its role as seen (0 where it
may be repeated), and its reader (none for targets, which are collected). A plain tuple unpacks three times as fast as a
NamedTuple."""

_new_tuple = tuple.__new__


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of one delay topic; equal rules decide every record alike.

    * ``topic``: the delay topic.
    * ``default_target``: where records without a target go; "" = such records are rejected.
    * ``allowed_targets``: names, or patterns with ``*``; see index.targets.
    * ``max_delay_ms``: 0 = no limit.
    * ``aliases``: other names for control headers; see index.headers.
    * ``forbidden_targets``: every topic that belongs to a router; the delay topic itself is always added.
    * ``enabled``: while it is False, every record is rejected with DELAY_DISABLED, whatever else is wrong with it.
    * ``version``: of the code that decides.
    * ``at_once``: while it is True, times are read and not waited for: every record is due at once.
    * ``target_rules``: what is ruled for single targets; see index.target_rules.

    Derived: ``stripped``, names of headers that a released record does not keep; ``unread``, roles whose headers mean
    nothing to these rules.

    Raises ValueError, naming the field, when one cannot be accepted.
    """

    topic: str
    default_target: str = ""
    allowed_targets: tuple[str, ...] = ()
    max_delay_ms: int = 0
    aliases: tuple[Alias, ...] = ()
    forbidden_targets: frozenset[str] = frozenset()
    enabled: bool = True
    version: int = RULES_VERSION
    at_once: bool = False
    target_rules: tuple[TargetRule, ...] = ()
    stripped: StrippedNames = field(init=False, repr=False, compare=False)
    unread: frozenset[Role] = field(init=False, repr=False, compare=False)
    _controls: dict[str, _Control] = field(init=False, repr=False, compare=False)
    _policy: TargetPolicy = field(init=False, repr=False, compare=False)
    _routes: dict[tuple[bytes | None, ...], tuple[str, ...]] = field(init=False, repr=False, compare=False)
    _targets: TargetRules = field(init=False, repr=False, compare=False)
    _max_ahead_ms: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if problem := illegal_topic(self.topic):
            raise ValueError(f"topic {self.topic!r}: {problem}")
        if not 0 <= self.max_delay_ms <= INT64_MAX:
            raise ValueError(f"max_delay_ms {self.max_delay_ms}: expected 0 (no limit) to {INT64_MAX}")
        refuse_unknown(self.version)
        forbidden = frozenset(self.forbidden_targets) | {self.topic}
        names = with_natives(self.aliases)
        unread = frozenset({Role.IGNORED} if self.version >= _KNOWS_EXPIRY else {Role.IGNORED, Role.EXPIRE})
        targets = TargetRules(self.max_delay_ms, self.target_rules)
        derived: dict[str, object] = {
            # One order, nothing twice: rules that mean the same are equal and have the same JSON.
            "allowed_targets": tuple(sorted(set(self.allowed_targets))),
            "aliases": tuple(sorted({names[alias.name] for alias in self.aliases})),
            "forbidden_targets": forbidden,
            "stripped": StrippedNames(names),
            "unread": unread,
            "_controls": {name: _control(alias) for name, alias in names.items() if alias.role not in unread},
            "_policy": TargetPolicy(self.default_target, self.allowed_targets, forbidden),
            "_routes": {},
            "target_rules": tuple(sorted(self.target_rules)),
            "_targets": targets,
            "_max_ahead_ms": targets.max_ahead_ms,
        }
        for name, value in derived.items():
            object.__setattr__(self, name, value)

    def decide(self, headers: Headers | None, timestamp_ms: int) -> Schedule | Rejection:
        """Decide one record from its headers and its timestamp (epoch ms, negative when it has none).

        This runs for every record that enters: one pass, and one lookup for each header that is not ours.
        """
        if not self.enabled:
            return Rejection(Reason.DELAY_DISABLED, f"Delivery from delay topic {self.topic} is switched off")
        found = _ABSENT.copy()
        seen = 0
        to: list[bytes | None] = []
        problems: list[Rejection] = []
        for name, raw in headers or ():
            control = self._controls.get(name)
            if control is None:
                continue
            slot, bit, read = control
            if read is None:
                to.append(raw)
                continue
            if seen & bit:
                return _repeated(name, _SLOTS[slot])  # nothing outranks it
            seen |= bit
            try:
                found[slot] = read(raw) if raw is not None else _null(slot)
            except ValueError as error:
                problems.append(_unreadable(name, raw, error))
        route = tuple(to)
        targets = self._routes.get(route) or self._route(route, problems)
        at, after, partition, key, deliver_id, expire_after, _, _ = found
        if at is None or self.at_once:
            at = AT_ONCE if after is None or self.at_once else timestamp_ms + after
        if at - timestamp_ms > self._max_ahead_ms or at > INT64_MAX or timestamp_ms < 0:
            self._judge_times(seen & _BOTH_TIMES, at, timestamp_ms, self._targets.limit_ms(targets), problems)
        if problems:
            return min(problems, key=_rank)
        both_times = seen & _BOTH_TIMES == _BOTH_TIMES
        # Schedule(...) is a constructor typing.NamedTuple writes in Python; this is 0.3 us a record faster.
        return _new_tuple(Schedule, (at, targets, partition, key, deliver_id, both_times, expire_after))

    def allowed(self, target: str) -> bool:
        """Whether records may be released to this topic; asked again at release, when the rules may be others."""
        return self._policy.refusal(target) is None

    def to_json(self) -> bytes:
        """Encode canonically: equal rules give equal bytes."""
        return json.dumps(plain_of(self), sort_keys=True, separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, stored: bytes) -> "Rules":
        """Decode what ``to_json`` wrote; FormatError on anything else, another version included."""
        try:
            rules = cls(**fields_of(json.loads(stored)))
        except (ValueError, TypeError, LookupError, RecursionError) as error:
            raise FormatError(f"stored rules cannot be read: {error}") from error
        if rules.to_json() != stored:
            raise FormatError("stored rules are not in the form this program writes; they may be damaged")
        return rules

    def _route(self, to: tuple[bytes | None, ...], problems: list[Rejection]) -> tuple[str, ...]:
        """Turn target headers into topic names and remember them; what is wrong with them joins the problems."""
        if len(set(to)) < len(to):
            message = "deliver-to: the same target is named twice, which would deliver the record twice"
            problems.append(Rejection(Reason.AMBIGUOUS_HEADER, message))
        if not to and not self.default_target:
            message = f"no deliver-to header, and delay topic {self.topic} has no default_target"
            problems.append(Rejection(Reason.TARGET_MISSING, message))
        targets = tuple(_topic_of(raw) for raw in to) or (self.default_target,)
        for raw, target in zip(to, targets, strict=False):
            if refusal := self._policy.refusal(target):
                problems.append(Rejection(Reason.TARGET_NOT_ALLOWED, f"deliver-to {quoted(raw)}: {refusal}"))
                break
        if disabled := self._targets.disabled(targets):
            problems.append(Rejection(Reason.DELAY_DISABLED, f"Delivery to target topic {disabled} is switched off"))
        if not problems and len(to) <= _MAX_REMEMBERED_FAN_OUT:
            if len(self._routes) >= _MAX_ROUTES:
                self._routes.clear()
            self._routes[to] = targets
        return targets

    def _judge_times(
        self, times: int, due_ms: int, timestamp_ms: int, limit_ms: int, problems: list[Rejection]
    ) -> None:
        """Add what is wrong with a due time, seen with the record's timestamp; ``times`` tells what was given."""
        if timestamp_ms < 0:
            if times == _AFTER_BIT or (times and limit_ms):
                counted = "deliver-after" if times == _AFTER_BIT else "the maximum delay"
                message = f"the record has no timestamp, from which {counted} is counted"
                problems.append(Rejection(Reason.INVALID_SCHEDULE, message))
        elif due_ms > INT64_MAX:
            message = f"the due time, {timestamp_ms} + {due_ms - timestamp_ms} ms, is over {INT64_MAX}"
            problems.append(Rejection(Reason.INVALID_SCHEDULE, message))
        elif limit_ms and due_ms - timestamp_ms > limit_ms:
            message = f"Exceeds max allowed delivery delay of {limit_ms} milliseconds"
            problems.append(Rejection(Reason.MAX_DELAY_EXCEEDED, message))


def _control(alias: Alias) -> _Control:
    if alias.role == Role.TO:
        return -1, 0, None
    slot = _SLOTS.index(alias.role)
    return slot, 0 if alias.role == Role.REFUSED else 1 << slot, reader(alias)


def _null(slot: int) -> object:
    # A null key is a key; for everything else null says nothing.
    if slot == _KEY_SLOT:
        return None
    raise ValueError("a value is needed")


def _repeated(name: str, role: Role) -> Rejection:
    message = f"{name}: '{role}' is given more than once, by this header or an alias of it"
    return Rejection(Reason.AMBIGUOUS_HEADER, message)


def _unreadable(name: str, raw: bytes | None, error: ValueError) -> Rejection:
    if isinstance(error, UnitSuspectedError):
        return Rejection(Reason.UNIT_SUSPECTED, f"{name} {quoted(raw)} {error}")
    return Rejection(Reason.INVALID_SCHEDULE, f"{name} {quoted(raw)}: {error}")


def _rank(problem: Rejection) -> int:
    return _ORDER.index(problem.reason)


def _topic_of(raw: bytes | None) -> str:
    # Bytes outside ASCII become a character no topic name has, so the policy refuses them.
    return "" if raw is None else raw.decode("ascii", "replace")
