"""Plays one behaviour on the shipped engine and the modelled Kafka, in a few words.

A playbook has one router, no faults, and a clock that the test moves. The time is told in milliseconds after the
beginning of the playbook, and a record is known by its value::

    play.sends("a", after_ms=1_000)
    play.turn(now_ms=999).releases(nothing)
    play.turn(now_ms=1_000).releases("a")

``turn`` lets the router work, first at the time of the last turn and then at the new time, until it has no more to do.
It returns the records that became visible.
"""

import dataclasses
import json
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from index.buckets.bucket_rules import SealRules
from index.named.receipts import ControlOutcome
from index.protocol.headers import Headers
from index.protocol.schedule import Reason
from index.rules.rules import Rules
from sidecar.engine.ownership.status import PartitionState, PartitionStatus
from sidecar.engine.release.rates import TargetLimit
from tests.simulation.host import PLENTY_BYTES, Host
from tests.simulation.run import first_state
from tests.simulation.serving import SteppedWorker
from tests.simulation.settings import Surroundings
from tests.simulation.world import (
    DELAY_TOPIC,
    REJECTED,
    START_MS,
    Clock,
    DelayLog,
    Faults,
    Left,
    Named,
    OwnClock,
    Produced,
    Store,
    Transaction,
)

ROUNDS: Final = 40
"""The rounds of one turn: more than any playbook needs for all that is due, and for sealing it."""

SEED: Final = 1
PLENTY: Final = 1_000
RULES: Final = Rules(DELAY_TOPIC, default_target="out", allowed_targets=("x", "y"), recurring=True)
nothing: Final = ""
"""Stands for no record."""


class ReceiptSeen(NamedTuple):
    """A receipt: its outcome, the values of the schedules that it names as cancelled, and their new due time."""

    outcome: ControlOutcome
    cancelled: tuple[str, ...]
    due_ms: int | None
    matched: int | None = None
    estimated: int | None = None


def receipt(outcome: str, *cancelled: str, due_ms: int | None = None) -> ReceiptSeen:
    """Return the receipt that a test expects."""
    return ReceiptSeen(ControlOutcome(outcome), cancelled, due_ms)


def query_receipt(*cancelled: str, matched: int | None = None, estimated: int | None = None) -> ReceiptSeen:
    """Return the receipt of a query that a test expects."""
    return ReceiptSeen(ControlOutcome.CANCELLED_WHERE, cancelled, None, matched, estimated)


def value_of(record: Produced) -> str:
    """Return the value that a test has given; a moved record and an occurrence have the value of their source."""
    return record.value.partition(b"/")[2].decode()


class Turn:
    """The records that became visible in one turn; each method compares some of them, in the order of the writes."""

    def __init__(self, log: DelayLog, committed: Sequence[Transaction]) -> None:
        self._values = {each.offset: value_of(each) for each in log.records}
        self._left = [left for each in committed for left in each.left]
        self._answers = [answer for each in committed for answer in each.answers]

    def releases(self, *values: str, to: str | None = None) -> "Turn":
        """Compare the released records: all of them, or those for one target."""
        _compare(self.released(to), [*filter(None, values)])
        return self

    def released(self, to: str | None = None) -> list[str]:
        """Return the values of the released records: of all of them, or of those for one target."""
        return self._named([each for each in self._left if each.topic != REJECTED and to in (None, each.topic)])

    def rejects(self, *values: str, because: Reason | None = None) -> "Turn":
        """Compare the rejected records, and their reason."""
        rejected = [each for each in self._left if each.topic == REJECTED]
        _compare(self._named(rejected), [*filter(None, values)])
        _compare({each.rejection.reason for each in rejected if each.rejection} - {because}, set())
        return self

    def writes(self, *receipts: ReceiptSeen) -> "Turn":
        """Compare the receipts."""
        _compare(self.receipts(), [*receipts])
        return self

    def receipts(self) -> list[ReceiptSeen]:
        """Return the receipts."""
        return [self._told(json.loads(each.record.value or b"")) for each in self._answers]

    def _named(self, left: Sequence[Left]) -> list[str]:
        return [self._values[each.offset] for each in left]

    def _told(self, said: Any) -> ReceiptSeen:
        cancelled = tuple(self._values[each["offset"]] for each in said["cancelled"])
        due_ms, numbers = said["due"] and said["due"] - START_MS, (said.get("matched"), said.get("estimated"))
        return ReceiptSeen(ControlOutcome(said["outcome"]), cancelled, due_ms, *numbers)


def _compare(found: object, expected: object) -> None:
    assert found == expected, f"{found}, not {expected}"


class Playbook:
    """One delay partition, with a router that is started by the first turn."""

    def __init__(
        self,
        *,
        rules: Rules = RULES,
        seal_rules: SealRules | None = None,
        make_host: Callable[[Surroundings], Host] | None = None,
    ) -> None:
        self._make_host = make_host
        faults = Faults(random.Random(SEED))
        faults.stop()
        faults.hurry_chance, faults.sizes_bytes, faults.memory_weights = 0.0, (PLENTY_BYTES,), (1, 0, 0)
        self._clock = Clock()
        self._around = Surroundings(
            OwnClock(self._clock),
            DelayLog(),
            Store(faults),
            faults,
            seal_rules or SealRules(),
            max_buckets=2,
            trims=False,
            rules=rules,
        )
        self._around.store.begin(first_state(rules))
        self._around.store.log = self._around.log
        self._serving: SteppedWorker | None = None

    def sends(
        self,
        value: str = "",
        *,
        key: bytes | None = b"k",
        after_ms: int | None = None,
        to: str | None = None,
        id: str | None = None,  # noqa: A002 -- the name of the header
        cancel: str | None = None,
        move: str | None = None,
        where: Mapping[str, object] | None = None,
        replace: bool = False,
        headers: Headers = (),
    ) -> None:
        """Let a producer send a record now; each word stands for the header of that name."""
        due_ms = None if after_ms is None else self._clock.now_ms + after_ms
        of_words = {
            "deliver-at": due_ms,
            "deliver-to": to,
            "deliver-id": id,
            "deliver-cancel": cancel,
            "deliver-move": move,
            "deliver-cancel-where": None if where is None else json.dumps(where),
            "deliver-replace": "true" if replace else None,
        }
        written = [(name, str(word).encode()) for name, word in of_words.items() if word is not None]
        log, said = self._around.log, (id or cancel or move or "").encode()
        named = Named(said, "move" if move else "") if said else None
        sent = Produced(
            log.end,
            [*written, *headers],
            self._clock.now_ms,
            due_us=0,
            target="",
            legible=True,
            key=key,
            padding=value.encode(),
            named=named,
        )
        log.records.append(sent)
        log.end += 1

    def sends_unreadable(self, value: str, *, records: int) -> None:
        """Let a producer send a batch of so many records that no client can read; the value stands for all of it."""
        self._around.log.append_unreadable(records, value.encode())

    def turn(self, *, now_ms: int) -> Turn:
        """Let the router work until this time, and return the records that became visible."""
        before = len(self._around.store.committed)
        if self._serving is None:
            self._serving = SteppedWorker(self._around, lambda: True, checks=True, make_host=self._make_host)
            self._serving.step()
        # All that was sent is read before time passes.
        for time_ms in (self._clock.now_ms, START_MS + now_ms):
            self._clock.now_ms = time_ms
            for _ in range(ROUNDS):
                self._serving.turn(reads=PLENTY, most_records=PLENTY)
                assert self._serving.met is None
                self._clock.running_s += 0.01
        return Turn(self._around.log, self._around.store.committed[before:])

    def passes(self, *, now_ms: int) -> None:
        """Let time pass while no router runs, until this time."""
        self.restarts()
        self._clock.now_ms = START_MS + now_ms

    def restarts(self) -> None:
        """Kill the router; the next turn starts another one."""
        self._serving = None

    def follows(self, **changes: Any) -> None:
        """Change the rules, as an operator does."""
        self._around.rules = dataclasses.replace(self._around.rules, **changes)

    def pauses(self, *targets: str) -> None:
        """Pause these targets and no other."""
        self._around.gated.clear()
        self._around.gated.update({each: TargetLimit(paused=True) for each in targets})

    def lacks(self, *targets: str) -> None:
        """Delete the topics of these targets, and make all others."""
        self._around.store.refusing.lose(targets)

    def takes(self, topic: str, *, most_bytes: int) -> None:
        """Let a topic refuse larger records; a record has the bytes of its key, its value and its headers."""
        self._around.store.refusing.most_bytes[topic] = most_bytes

    def counts_at_most(self, entries: int) -> None:
        """Let a router that starts from now on look at no more entries to count what a query cancels."""
        self._around.limits = dataclasses.replace(self._around.limits, count_budget=entries)

    def loses(self, value: str) -> None:
        """Let retention remove a record of the delay topic, and all records in front of it."""
        log = self._around.log
        log.start = 1 + next(each.offset for each in log.records if value_of(each) == value)

    @property
    def buckets(self) -> int:
        """The number of sealed buckets."""
        assert self._serving is not None
        return len(self._serving.owned.ledger.parts.buckets)

    @property
    def queries(self) -> int:
        """The number of queries in force."""
        assert self._serving is not None
        return len(self._serving.owned.ledger.named.queries)

    @property
    def status(self) -> PartitionStatus:
        """The status that the router tells of the partition."""
        assert self._serving is not None
        return self._serving.owned.status(PartitionState.ACTIVE, "")
