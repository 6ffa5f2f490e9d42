"""Finds everything that became of an id: pending schedules, receipts, rejected records, and copies in targets.

A producer knows the ids that it has sent, and seldom a place. Pending schedules are found exactly. Of all other topics
the newest records are read, within one limit of time for all of them.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka.admin import AdminClient

from index.named.receipts import ControlOutcome
from index.protocol.headers import (
    DELAY_ATTEMPT,
    DELAY_ATTEMPTS_EXHAUSTED,
    DELAY_ERROR,
    DELAY_ID,
    DELAY_SOURCE,
    HeaderRole,
)
from index.rules.controls import ControlHeaders
from sidecar.config.delay_topic import DelayTopicConfig
from sidecar.config.model import Config
from sidecar.kafka.client.admin import MISSING, REQUEST_TIMEOUT_S
from sidecar.kafka.client.errors import error_of
from sidecar.kafka.reading.handed_over import readable_headers
from sidecar.operations.finding.finder import Finder
from sidecar.operations.finding.wanted import PagePlace, ScheduleFilter
from sidecar.operations.status.answers import Fate, IdAnswer, IdTrace
from sidecar.operations.status.searching import look_back

SEARCH_S: Final = 10.0
"""Time for all topics together; a call of the admin API ends later."""

MOST_TARGETS: Final = 20
MOST_TRACES: Final = 100
_PAGES: Final = 3
_FATES: Final = {
    ControlOutcome.CANCELLED: Fate.CANCELLED,
    ControlOutcome.REPLACED: Fate.REPLACED,
    ControlOutcome.MOVED: Fate.MOVED,
}
_UNREADABLE: Final = MISSING | {KafkaError.TOPIC_AUTHORIZATION_FAILED}

Look = Callable[[Message], IdTrace | None]


class IdSearch:
    """Searches for ids, from any thread; raises KafkaException when the cluster does not answer."""

    def __init__(self, config: Config, admin: AdminClient, finder: Finder) -> None:
        self._config = config
        self._admin = admin
        self._finder = finder

    def of(self, topic: DelayTopicConfig, partitions: int, deliver_id: bytes) -> IdAnswer:
        """Search for an id in a delay topic of so many partitions, and in the topics around it."""
        search = _Search(self._config, self._admin, topic, deliver_id, time.monotonic() + SEARCH_S)
        pending = [*self._pending(topic, partitions, search)]
        others = sorted(search.traces(), key=lambda each: -each.at_ms)[:MOST_TRACES]
        shown = deliver_id.decode("utf-8", "replace")
        return IdAnswer(topic=topic.name, id=shown, traces=(*pending, *others), unread=tuple(search.unread))

    def _pending(self, topic: DelayTopicConfig, partitions: int, search: "_Search") -> Iterator[IdTrace]:
        wanted, begin = ScheduleFilter(topic.name, search.deliver_id), PagePlace(0)
        for _ in range(_PAGES):
            page = self._finder.page(topic, partitions, wanted, begin, MOST_TRACES)
            for each in page.schedules:
                place = f"{topic.name}/{each.partition}/{each.offset}"
                attempt = "" if each.attempt is None else f", attempt {each.attempt.number}"
                why = f"to {', '.join(each.targets)}{attempt}"
                yield IdTrace(fate=Fate.PENDING, place=place, at_ms=each.due_ms, why=why, source=place)
            if page.next_from is None:
                return
            begin = page.next_from
        search.unread.append(f"more may be pending from {begin} on: delay-router schedules {topic.name} --id ...")


@dataclass(slots=True)
class _Search:
    """One search; ``unread`` collects the places where it was not complete."""

    config: Config
    admin: AdminClient
    topic: DelayTopicConfig
    deliver_id: bytes
    until_s: float
    unread: list[str] = field(default_factory=list)

    def traces(self) -> Iterator[IdTrace]:
        """Yield the traces in the topics around the delay topic."""
        source = f"{self.topic.name}/".encode()
        controls = self.config.rules_for(self.topic).controls
        yield from self._within(self.topic.receipts, partial(in_receipts, self.deliver_id, source))
        yield from self._within(self.topic.rejected, partial(in_rejected, self.deliver_id, source, controls))
        targets = self._targets()
        for name in targets[:MOST_TARGETS]:
            yield from self._within(name, partial(in_target, self.deliver_id, source))
        if len(targets) > MOST_TARGETS:
            self.unread.append(
                f"{len(targets) - MOST_TARGETS} targets were not looked through: the first is {targets[MOST_TARGETS]}"
            )

    def _targets(self) -> list[str]:
        """Return the existing targets, the ones that the configuration names first."""
        existing = self.admin.list_topics(timeout=REQUEST_TIMEOUT_S).topics
        rules = self.config.rules_for(self.topic)
        named = [name for name in self.topic.named_targets() if name in existing]
        return list(dict.fromkeys([*named, *(name for name in sorted(existing) if rules.allowed(name))]))

    def _within(self, name: str, look: Look) -> Iterator[IdTrace]:
        if time.monotonic() > self.until_s:
            self.unread.append(f"{name} was not looked through: the time of one answer is over")
            return
        try:
            found, unread = look_back(self.config, self.admin, name, look, self.until_s)
        except KafkaException as exception:
            if error_of(exception).code() not in _UNREADABLE:
                raise
            found, unread = [], f"{name} does not exist, or may not be read"
        yield from found
        if unread:
            self.unread.append(unread)


def in_receipts(deliver_id: bytes, source: bytes, message: Message) -> IdTrace | None:
    """Return the trace in a receipt of a control with this id; ``source`` begins each place of the delay topic."""
    if message.key() != deliver_id:
        return None
    control = dict(readable_headers(message)).get(DELAY_SOURCE) or b""
    try:
        said = json.loads(message.value() or b"")
        outcome, count = ControlOutcome(said["outcome"]), len(said["cancelled"])
    except (ValueError, KeyError, TypeError, RecursionError):
        # Another program may have written a record that is no receipt.
        return None
    if not control.startswith(source):
        return None
    return _trace(message, control, _FATES.get(outcome, Fate.ANSWERED), f"{outcome}: {count}, by {_text(control)}")


def in_rejected(deliver_id: bytes, source: bytes, controls: ControlHeaders, message: Message) -> IdTrace | None:
    """Return the trace in a rejected record with this id."""
    headers = readable_headers(message)
    # dict() keeps the last header of each name, and the router adds its own headers last.
    last = dict(headers)
    came_from = last.get(DELAY_SOURCE) or b""
    ids = (value for name, value in headers if controls.role(name) is HeaderRole.ID)
    if not came_from.startswith(source) or deliver_id not in ids:
        return None
    return _trace(message, came_from, Fate.REJECTED, f"{_text(last.get(DELAY_ERROR) or b'')}, {_text(came_from)}")


def in_target(deliver_id: bytes, source: bytes, message: Message) -> IdTrace | None:
    """Return the trace in a record of a target: a released copy."""
    last = dict(readable_headers(message))
    came_from = last.get(DELAY_SOURCE) or b""
    if last.get(DELAY_ID) != deliver_id or not came_from.startswith(source):
        return None
    return _trace(message, came_from, Fate.RELEASED, f"{_text(came_from)}{_attempt(last)}")


def _attempt(headers: Mapping[str, bytes | None]) -> str:
    """Return the attempt of a released record as its headers tell it; empty where none was counted."""
    made, number = (_text(headers.get(name) or b"") for name in (DELAY_ATTEMPTS_EXHAUSTED, DELAY_ATTEMPT))
    return f", exhausted after {made} attempts" if made else number and f", attempt {number}"


def _trace(message: Message, source: bytes, fate: Fate, why: str) -> IdTrace:
    place = f"{message.topic()}/{message.partition()}/{message.offset()}"
    return IdTrace(fate=fate, place=place, at_ms=message.timestamp()[1], why=why, source=_text(source))


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")
