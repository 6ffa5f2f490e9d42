"""The rules of a delay topic: turn each record into a schedule, a control, or a rejection with its reason.

``Rules.decide`` looks only at the record's headers and timestamp: at no clock, no cluster, and no other records.
Records that are indexed but not sealed are decided again after every restart and must come out the same; so the state
holds the rules in force (``to_json``), each set with the offsets it applies to.

All problems of a record are found, and the first one in this order becomes its reason:

==  ====================  ==============================================================================
1   AMBIGUOUS_HEADER      a role given twice (an alias counts as its role), or the same target named twice
2   INVALID_SCHEDULE      a control header that cannot be read (``deliver-after`` too, where ``deliver-at``
                          outranks it), an unknown ``deliver-`` header, a due time over 64 bits, no timestamp to
                          count a delay from, no time where one is required, or passed on too often without one
3   UNIT_SUSPECTED        a ``deliver-at`` number that only makes sense in another unit
4   MAX_DELAY_EXCEEDED    due time - record timestamp is over ``max_delay_ms`` (PIP-315)
5   TARGET_MISSING        no target in the record and no default target
6   TARGET_NOT_ALLOWED    a target that is no topic name, can never be one, or is not on the allow-list
7   DELAY_DISABLED        a target that is switched off (a switched-off delay topic rejects all, at once)
==  ====================  ==============================================================================

The other codes are given later, by components that know the cluster. A record with neither time header is due at once:
its due time is ``AT_ONCE`` (0) and not its timestamp, because a producer's clock may run up to an hour ahead of the
broker's (KIP-1030) and such a record would wait. ``deliver-at: 0`` means the same as no time. Rules with a ``delay_ms``
decide such a record as if it had a ``deliver-after`` of that length; then only ``deliver-at: 0`` is at once. Where
targets have a spread, ``Rules.placed`` computes when a record leaves, by its offset (:mod:`index.rules.spreading`).
Rules with a ``retry`` count the attempts of each record and choose its wait (:mod:`index.rules.retrying`).
"""

import json
from dataclasses import dataclass, field, replace
from typing import Any, Final

from index.errors import FormatError
from index.protocol.control_headers import control_of
from index.protocol.headers import RETRY, HeaderRole, Headers, StrippedNames, lowered, quoted
from index.protocol.readers import MAX_HOPS
from index.protocol.recurring import first_due
from index.protocol.rejections import REFUSED_NAME, passed_on, rank, repeated, unreadable
from index.protocol.schedule import (
    AT_ONCE,
    BY_KEY,
    KEEP_KEY,
    Action,
    Control,
    Decision,
    KeepKey,
    Reason,
    Rejection,
    Schedule,
    schedule_of,
)
from index.protocol.times import INT64_MAX
from index.rules.controls import ABSENT, AFTER_BIT, AT_BIT, SLOTS, ControlHeaders, null_value
from index.rules.retrying import Retry, Retrying, sooner
from index.rules.rules_stored import RULES_VERSION, StoredRules, fields_of, plain_of, refuse_unknown
from index.rules.spreading import MAX_SPREAD_MS, spread
from index.rules.targets import TargetPolicy, TargetRule, TargetRules, illegal_topic, topic_of
from index.rules.time_problems import problems_of_times, timed

__all__ = [
    "AT_ONCE",
    "BY_KEY",
    "KEEP_KEY",
    "RULES_VERSION",
    "KeepKey",
    "Reason",
    "Rejection",
    "Retry",
    "Rules",
    "Schedule",
    "TargetRule",
]

# Producers choose the names of targets: at most 16 MiB when every name is as long as Kafka allows and every record goes
# to 16 of them; in practice a few kB.
_MAX_ROUTES: Final = 4096
_MAX_REMEMBERED_FAN_OUT: Final = 16

_BOTH_TIMES: Final = AT_BIT | AFTER_BIT
_new_tuple = tuple.__new__


@dataclass(frozen=True, slots=True)
class Rules(StoredRules):
    """The rules of one delay topic; equal rules decide every record alike.

    Derived fields: the headers that a release removes, the meaning of header names, and whether ``placed`` changes
    anything. Raises ValueError, naming the field, when a field cannot be accepted.
    """

    stripped: StrippedNames = field(init=False, repr=False, compare=False)
    controls: ControlHeaders = field(init=False, repr=False, compare=False)
    spreads: bool = field(init=False, repr=False, compare=False)
    _policy: TargetPolicy = field(init=False, repr=False, compare=False)
    _routes: dict[tuple[bytes | None, ...], tuple[str, ...]] = field(init=False, repr=False, compare=False)
    _targets: TargetRules = field(init=False, repr=False, compare=False)
    _max_ahead_ms: int = field(init=False, repr=False, compare=False)
    _retrying: Retrying | None = field(init=False, repr=False, compare=False)
    _decides_apart: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if problem := illegal_topic(self.topic):
            raise ValueError(f"topic {self.topic!r}: {problem}")
        if not 0 <= self.max_delay_ms <= INT64_MAX:
            raise ValueError(f"max_delay_ms {self.max_delay_ms}: expected 0 (no limit) to {INT64_MAX}")
        refuse_unknown(self.version)
        later = self.require_time or self.ignores_unknown or self.recurring or self.delay_ms
        if self.are_of_0_1_0 and (later or self.retry):
            unknown = "require_time, ignores_unknown, recurring and delay_ms"
            raise ValueError(f"version {self.version} does not know {unknown if later else 'retry'}")
        if not 1 <= self.min_period_ms <= INT64_MAX:
            raise ValueError(f"min_period_ms {self.min_period_ms}: expected 1 to {INT64_MAX}")
        if not 0 <= self.delay_ms <= INT64_MAX:
            raise ValueError(f"delay_ms {self.delay_ms}: expected 0 (none) to {INT64_MAX}")
        if not 0 <= self.spread_ms <= MAX_SPREAD_MS:
            raise ValueError(f"spread_ms {self.spread_ms}: expected 0 (none) to {MAX_SPREAD_MS}")
        retry = self._checked_retry()
        forbidden = frozenset(self.forbidden_targets) | {self.topic}
        controls = ControlHeaders(
            self.aliases, self.version, ignores_unknown=self.ignores_unknown, recurring=self.recurring
        )
        named = (alias.name if self.are_of_0_1_0 else lowered(alias.name) for alias in self.aliases)
        targets = TargetRules(self.max_delay_ms, self.target_rules, self.spread_ms)
        derived: dict[str, object] = {
            # One order and no duplicates: rules that mean the same are equal and have the same JSON.
            "allowed_targets": tuple(sorted(set(self.allowed_targets))),
            "aliases": tuple(sorted({controls.aliases[name] for name in named})),
            "forbidden_targets": forbidden,
            "stripped": StrippedNames(controls.aliases),
            "controls": controls,
            "retry": retry,
            "spreads": targets.spreads or (retry is not None and retry.jitter > 0),
            "_policy": TargetPolicy(
                *(self.default_target, self.allowed_targets, forbidden),
                refuses_scheme=not self.are_of_0_1_0,
                dead_letter="" if retry is None else retry.dead_letter,
            ),
            "_routes": {},
            "target_rules": tuple(sorted(self.target_rules)),
            "_targets": targets,
            "_max_ahead_ms": targets.max_ahead_ms,
            "_decides_apart": retry is not None or not self.enabled,
        }
        for name, value in derived.items():
            object.__setattr__(self, name, value)
        object.__setattr__(self, "_retrying", None if retry is None else self._retrying_by(retry))

    # In one piece: a call for each record costs a tenth of it.
    def decide(self, headers: Headers | None, timestamp_ms: int) -> Decision:  # noqa: C901, PLR0912 -- see above
        """Decide one record from its headers and its timestamp (epoch ms, negative when it has none).

        This runs for every record that enters: one pass, and one lookup for each header that has no meaning.
        """
        if self._decides_apart:
            if self._retrying is not None and self.enabled:
                return self._retrying.decide(headers or (), timestamp_ms)
            return Rejection(Reason.DELAY_DISABLED, f"Delivery from delay topic {self.topic} is switched off")
        controls, found = self.controls, [*ABSENT]
        seen = 0
        to: list[bytes | None] = []
        problems: list[Rejection] = []
        for name, raw in headers or ():
            control = controls[name]
            if control is None:
                continue
            slot, bit, read = control
            if read is None:
                to.append(raw)
                continue
            if seen & bit:
                if raw is None and bit & controls.absent_when_null:
                    continue
                return repeated(name, SLOTS[slot])  # nothing outranks it
            seen |= bit
            try:
                if raw is not None:
                    found[slot] = read(raw)
                elif bit & controls.absent_when_null:
                    seen ^= bit
                else:
                    found[slot] = null_value(slot, bit, read)
            except ValueError as error:
                problems.append(unreadable(name, raw, error))
        at, after, partition, key, deliver_id, expire_after, _, hops, recurs, is_control = found
        asked = control_of(headers or (), self.controls.role) if is_control else None
        if isinstance(asked, Rejection):
            problems.append(asked)
            asked = None
        elif asked is not None and asked.action is not Action.REPLACE:
            # It becomes no schedule, so neither a target nor a time is missing.
            asked, more = timed(asked, seen & _BOTH_TIMES, at, after, timestamp_ms, self._targets.longest_ms)
            return self._worst(problems + more, headers or ()) if problems or more else asked
        route = tuple(to)
        targets = self._routes.get(route) or self._route(route, problems)
        if recurs and (due_ms := self._recurring_due(headers or (), at, after, timestamp_ms, problems)) is not None:
            # It waits even where others leave at once, because otherwise it would never end.
            at, hops = due_ms, None
        elif at is None or self.at_once:
            if self.delay_ms and not self.at_once and not seen & _BOTH_TIMES:
                after, seen = self.delay_ms, seen | AFTER_BIT
            at = AT_ONCE if after is None or self.at_once else timestamp_ms + after
            if (hops or self.require_time) and not seen & _BOTH_TIMES:
                problems += self._untimed(hops or 0)
        if at - timestamp_ms > self._max_ahead_ms or at > INT64_MAX or timestamp_ms < 0:
            problems += problems_of_times(seen & _BOTH_TIMES, at, timestamp_ms, self._targets.limit_ms(targets))
        if problems:
            return self._worst(problems, headers or ())
        both_times = seen & _BOTH_TIMES == _BOTH_TIMES
        # Schedule(...) is a constructor typing.NamedTuple writes in Python; this is 0.3 us a record faster.
        schedule: Schedule = _new_tuple(
            Schedule, (at, targets, partition, key, deliver_id, both_times, expire_after, 0, None)
        )
        return schedule if asked is None else asked._replace(schedule=schedule)

    def placed(self, decision: Decision, timestamp_ms: int, offset: int) -> Decision:
        """Return the decision about a record at its offset: with its jitter, and within the spread of its targets."""
        schedule = schedule_of(decision) if self.spreads else None
        if schedule is None:
            return decision
        shifted = sooner(schedule, timestamp_ms, offset)
        if self._targets.spreads:
            shifted = spread(shifted, self.spread_ms_of(shifted.targets), timestamp_ms, offset)
        return decision._replace(schedule=shifted) if isinstance(decision, Control) else shifted

    def role(self, name: str) -> HeaderRole | None:
        """Return the role of a header, as :meth:`index.rules.controls.ControlHeaders.role` does."""
        return self.controls.role(name)

    def spread_ms_of(self, targets: tuple[str, ...]) -> int:
        """Return how much later than requested a record with these targets leaves at most, in ms."""
        return self._targets.spread_ms(targets)

    def allowed(self, target: str) -> bool:
        """Return whether records may be released to this topic; asked again at release, when other rules may apply."""
        return self._policy.refusal(target) is None

    def start_ms(self, headers: Headers, timestamp_ms: int) -> int:
        """Return when an accepted recurring schedule starts: at the time in its headers, else at its timestamp."""
        found: dict[int, Any] = {}
        for name, raw in headers:
            control = self.controls[name]
            if control is not None and raw is not None and control[1] & _BOTH_TIMES and control[2] is not None:
                found[control[1]] = control[2](raw)
        if AT_BIT in found:
            return int(found[AT_BIT])
        return timestamp_ms + int(found.get(AFTER_BIT, 0))

    def names_time(self, headers: Headers | None) -> bool:
        """Return whether the record names a time, even an instant long past, or recurs."""
        found = [(name, self.controls[name]) for name, raw in headers or () if raw is not None]
        return any(
            control[1] & _BOTH_TIMES or self.controls.recurs(name) for name, control in found if control is not None
        )

    def to_json(self) -> bytes:
        """Encode canonically: equal rules give equal bytes."""
        return json.dumps(plain_of(self), sort_keys=True, separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, stored: bytes) -> "Rules":
        """Decode the output of ``to_json``; raise FormatError for anything else, another version included."""
        try:
            rules = cls(**fields_of(json.loads(stored)))
        except (ValueError, TypeError, LookupError, RecursionError) as error:
            raise FormatError(f"stored rules cannot be read: {error}") from error
        if rules.to_json() != stored:
            raise FormatError("stored rules are not in the form this program writes; they may be damaged")
        return rules

    def _checked_retry(self) -> Retry | None:
        """Return the retry; None where no attempts are counted. Raise ValueError for one that cannot be."""
        retry = self.retry
        if retry is None:
            return None
        retry.refuse_impossible()
        if not retry.attempts:
            return None
        if self.recurring:
            raise ValueError("retry and recurring exclude each other; use a delay topic of its own for each")
        if retry.dead_letter == self.default_target:
            raise ValueError(f"retry: dead_letter {retry.dead_letter!r} is the default_target, whose consumer gave up")
        named = next((alias.name for alias in self.aliases if lowered(alias.name) in RETRY), "")
        if named:
            raise ValueError(f"alias {named!r}: retries give this name a meaning; choose another")
        return retry

    def _retrying_by(self, retry: Retry) -> Retrying:
        plain = replace(self, retry=None, delay_ms=0)
        dead = replace(plain, default_target=retry.dead_letter, require_time=False)
        return Retrying(retry, plain, dead)

    def _route(self, to: tuple[bytes | None, ...], problems: list[Rejection]) -> tuple[str, ...]:
        """Turn target headers into topic names and remember them; add their problems to ``problems``."""
        if len(set(to)) < len(to):
            message = "deliver-to: the same target is named twice, which would deliver the record twice"
            problems.append(Rejection(Reason.AMBIGUOUS_HEADER, message))
        if not to and not self.default_target:
            message = f"no deliver-to header, and delay topic {self.topic} has no default_target"
            problems.append(Rejection(Reason.TARGET_MISSING, message))
        targets = tuple(topic_of(raw) for raw in to) or (self.default_target,)
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

    def _worst(self, problems: list[Rejection], headers: Headers) -> Rejection:
        worst = min(problems, key=rank)
        return worst if worst is not REFUSED_NAME else self._refused(headers)

    def _refused(self, headers: Headers) -> Rejection:
        # Only the first is reported, because a record may have very many.
        name = next(name for name, _ in headers if self.controls.refuses(name))
        return Rejection(Reason.INVALID_SCHEDULE, self.controls.refusal(name))

    def _untimed(self, hops: int) -> list[Rejection]:
        """Return the problems of a record that names no time."""
        if hops >= MAX_HOPS:
            return [passed_on(hops)]
        message = f"neither deliver-at nor deliver-after, and delay topic {self.topic} takes delays only"
        return [Rejection(Reason.INVALID_SCHEDULE, message)] if self.require_time and not self.delay_ms else []

    def _recurring_due(
        self,
        headers: Headers,
        at: int | None,
        after: int | None,
        timestamp_ms: int,
        problems: list[Rejection],
    ) -> int | None:
        """Return when a recurring schedule is due first; None where it does not recur after all."""
        start_ms = at if at is not None or after is None else timestamp_ms + after
        due = first_due(headers, start_ms, timestamp_ms, self.min_period_ms)
        if isinstance(due, Rejection):
            problems.append(due)
            return AT_ONCE
        return due
