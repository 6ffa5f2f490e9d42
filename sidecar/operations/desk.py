"""The questions and changes of an operator, for the admin API of a router and for the commands.

Every question is about the whole group, and any process answers it: from the topics of the routers, not from another
router. :class:`sidecar.operations.asking.api_client.ApiClient` has the same methods for a command without a connection
to Kafka.

A change of a policy is written to the policies topic. Every router on every host sees it within a second, also a router
that starts later. No change waits until a partition follows: the status of the partition tells how far it has come. Of
two changes of one scope at the same time the later one wins as a whole, also for keys that it did not name. People
change policies, a few times a day.
"""

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from functools import partial
from typing import Any, Final, Self

from confluent_kafka.admin import AdminClient

from index.errors import ConfigError, DelayRouterError
from index.named.receipts import Matched
from index.protocol.record import Record
from index.protocol.schedule import AT_ONCE
from index.rules.rules import Rules
from sidecar import clock
from sidecar.cluster.topics import reach
from sidecar.config.model import Config
from sidecar.config.units import format_instant
from sidecar.kafka.client.admin import topic_facts
from sidecar.kafka.writing.record_writer import RecordWriter
from sidecar.operations.controls import ordering, replacing, writing
from sidecar.operations.controls.orders import WAIT_S, ControlOrder, NewRecord, QueryOrder, ReceiptAnswer, Written
from sidecar.operations.finding.wanted import ScheduleFilter
from sidecar.operations.rejected import listing, redriving
from sidecar.operations.rejected.counting import Counted, Counts
from sidecar.operations.rejected.listing import Position
from sidecar.operations.rejected.redriving import Progress, Redrive
from sidecar.operations.rejected.selection import RejectedSelection
from sidecar.operations.schedules import counted, schedules_answer
from sidecar.operations.status.answers import (
    AttemptsAnswer,
    IdAnswer,
    LookupAnswer,
    MatchingAnswer,
    PendingAnswer,
    SchedulesAnswer,
    StatusAnswer,
)
from sidecar.operations.status.inquiries import GroupInquiries, Statuses
from sidecar.operations.status.report_reader import Reports, ReportsOnDemand
from sidecar.operations.watching.history import History, HistoryAnswer
from sidecar.operations.watching.routers import RoutersAnswer, routers_answer
from sidecar.policies.origin import NOBODY, ChangeOrigin
from sidecar.policies.policy import (
    MAX_POLICY_BYTES,
    PAUSE_TERMS,
    Policy,
    Scope,
    ScopeKind,
    changed,
    encode,
    plain_of,
    policy_of,
)
from sidecar.policies.switches import SwitchKey, pause_terms
from sidecar.policies.table import (
    EffectiveValue,
    Policies,
    PolicyTable,
    effective,
    refuse_impossible,
    settings_of,
    with_policy,
)
from sidecar.policies.topic import PoliciesOnDemand, write_policy

FRESH_FOR_S: Final = 0.25
"""Age up to which the policies are reused. A look for newer ones costs a fetch; many readers share four a second."""


class IrreconcilableError(DelayRouterError):
    """The policies of a delay topic contradict the configuration."""


class Operations:
    """The questions and changes, which any thread may ask and make; each may block for seconds.

    Every method raises ConfigError for a delay topic, partition or value that is impossible, and KafkaException when
    the cluster does not answer. In a router, ``own`` returns the statuses of its partitions, which are newer than any
    report, ``instance`` is its name and ``kernel`` the kernel that it runs with. ``history`` is fed by ``reports``.
    """

    def __init__(
        self,
        config: Config,
        admin: AdminClient,
        policies: Policies,
        reports: Reports,
        *,
        own: Statuses = tuple,
        instance: str = "",
        kernel: str = "",
        history: History | None = None,
        origin: ChangeOrigin = NOBODY,
        now_ms: Callable[[], int] = clock.now_ms,
    ) -> None:
        self._config = config
        self._admin = admin
        self._policies = policies
        self._look = _PolicyLook(policies)
        self._group = GroupInquiries(config, admin, policies, reports, own=own, instance=instance, kernel=kernel)
        self._history = history
        self._records = RecordWriter(config)
        self._counts = Counts(config, admin)
        self.origin = origin
        self._now_ms = now_ms
        self._lock = threading.Lock()

    @classmethod
    def for_command(
        cls, config: Config, origin: ChangeOrigin = NOBODY, needs: reach.Needs | None = None, otherwise: str = ""
    ) -> Self:
        """Return the operations for a process that is no router and ends soon; connect to Kafka as ``reach`` does.

        Raise DelayRouterError, as ``require_rights`` does, where one of the ``needs`` is missing.
        """
        config.require_delay_topics()
        admin = reach.connect(config)
        reach.require_rights(config, admin, needs or {}, otherwise)
        reports = ReportsOnDemand(config, admin, clock.now_ms)
        return cls(config, admin, PoliciesOnDemand(config), reports, origin=origin)

    def start(self) -> Self:
        """Begin to follow the status topic, until ``close``, where ``reports`` follow it in a thread."""
        self._group.start()
        return self

    def close(self) -> None:
        """Close the clients."""
        self._group.close()
        self._records.close()

    def by(self, origin: ChangeOrigin) -> Self:
        """Return operations whose changes name this origin."""
        made = copy(self)
        made.origin = origin
        return made

    def status(self, topic: str = "") -> StatusAnswer:
        """Return the status of all delay topics, or of one."""
        return self._group.status(topic)

    def pending(self, topic: str) -> PendingAnswer:
        """Return the counts of the pending records of one delay topic."""
        return self._group.pending(topic)

    def routers(self) -> RoutersAnswer:
        """Return every router of the group that has reported lately."""
        return routers_answer(*self._group.routers())

    def history(self, topic: str = "") -> HistoryAnswer:
        """Return the last hour of one delay topic, or of all together."""
        if self._history is None or not self._config.router.status_topic:
            why = "only a router with the admin API and a router.status_topic keeps the last hour"
            return HistoryAnswer(topic=topic, minutes=(), why=why)
        return self._history.answer(topic)

    def lookup(self, topic: str, partition: int, offset: int) -> LookupAnswer:
        """Return the fate of one record."""
        return self._group.lookup(topic, partition, offset)

    def record(self, topic: str, partition: int, offset: int, due_ms: int | None = None) -> Record:
        """Return one record of a delay topic with its content; raise ConfigError where it is gone.

        ``due_ms`` finds a pending schedule whose record only a segment has.
        """
        found = self._group.record(topic, partition, offset, due_ms or AT_ONCE)
        if found is None:
            raise ConfigError(f"{topic}/{partition}/{offset}: there is no such record, or it is no longer kept")
        return found

    def rejected_record(self, topic: str, partition: int, offset: int) -> Record:
        """Return one record of a rejected topic with its content; raise ConfigError where there is none."""
        configured = self._config.require_delay_topic(topic)
        found = listing.record_at(self._config, self._admin, configured, (partition, offset))
        if found is None:
            place = f"{configured.rejected}/{partition}/{offset}"
            raise ConfigError(f"{place}: no record of {topic} lies there, or it is no longer kept")
        return found

    def find(self, topic: str, deliver_id: bytes) -> IdAnswer:
        """Return everything that was found of an id: pending, in receipts, rejected, and in targets."""
        return self._group.find(topic, deliver_id)

    def schedules(self, wanted: ScheduleFilter, begin: str, most: int, upcoming: int = 0) -> SchedulesAnswer:
        """Return a page of pending schedules, from the end of the page before or from the first schedule.

        Each recurring one has its next ``upcoming`` due times.
        """
        return schedules_answer(wanted.topic, self._group.schedules(wanted, begin, most), upcoming)

    def matching(self, topic: str, order: QueryOrder, begin: str = "") -> MatchingAnswer:
        """Count the schedules that an order would cancel, from a place on; a call counts for some seconds."""
        if order.where.is_empty:
            return MatchingAnswer(topic=topic, matching=0)
        wanted = ScheduleFilter(topic, where=order.where)
        page = partial(self._group.schedules, wanted, partition=order.partition)
        return counted(page, begin).as_matching(topic)

    def attempts(self, topic: str, most: int) -> AttemptsAnswer:
        """Count at most so many pending records by the attempt that they wait for; it takes some seconds at most."""
        return counted(partial(self._group.schedules, ScheduleFilter(topic)), most=most).as_attempts(topic)

    def cancel_or_move(self, topic: str, order: ControlOrder, wait_s: float = WAIT_S) -> ReceiptAnswer:
        """Cancel or move pending schedules as :func:`sidecar.operations.controls.ordering.carry_out` does."""
        configured = self._config.require_delay_topic(topic)
        return ordering.carry_out(self._config, self._admin, configured, order, wait_s)

    def cancel_where(self, topic: str, order: QueryOrder, wait_s: float = WAIT_S) -> Matched:
        """Cancel all schedules that match as :func:`sidecar.operations.controls.ordering.cancel_where` does."""
        configured = self._config.require_delay_topic(topic)
        return ordering.cancel_where(self._config, self._admin, configured, order, wait_s)

    def replace_schedules(
        self,
        topic: str,
        deliver_id: str,
        record: NewRecord,
        if_due_ms: int | None = None,
        wait_s: float = WAIT_S,
    ) -> tuple[Written, ReceiptAnswer]:
        """Write a record that replaces the schedules pending under an id in its partition; return its receipt, too.

        Raise ConfigError where the record has no key and could go to another partition than the schedule to replace,
        and the errors of :meth:`write_record` and of :func:`sidecar.operations.controls.replacing.judged`.
        """
        configured = self._config.require_delay_topic(topic)
        if record.key is None:
            replacing.require_key(self._admin, topic)
        with replacing.receipts_to_come(self._config, self._admin, topic) as receipts:
            written = self.write_record(topic, record.with_headers(replacing.headers_of(deliver_id, if_due_ms)))
            place = written.partition, written.offset
            return written, replacing.replaced_by(place, receipts, configured, deliver_id, wait_s)

    def write_record(self, topic: str, record: NewRecord) -> Written:
        """Write a record to a delay topic as :func:`sidecar.operations.controls.writing.write` does.

        Raise IrreconcilableError when the rules of the delay topic are not known.
        """
        return writing.write(self._records, self._rules(topic), record)

    def rejected(self, selection: RejectedSelection, begin: Position, most: int) -> dict[str, Any]:
        """Return a page of rejected records, as ``RejectedPage.as_json`` does."""
        topic = self._config.require_delay_topic(selection.topic)
        return listing.page(self._config, self._admin, topic, selection, begin, most).as_json()

    def rejected_codes(self, topic: str) -> Counted:
        """Return the counts of rejected records by code; raise OutOfTimeError when reading takes too long."""
        return self._counts.of(self._config.require_delay_topic(topic))

    def rejected_counts(self) -> dict[str, Counted]:
        """Return the counts of all delay topics, without those that cannot be read, or not yet."""
        return self._counts.of_each(self._config.delay_topics)

    def redrive(self, order: Redrive, on_progress: Progress) -> dict[str, int]:
        """Drive rejected records again as :func:`sidecar.operations.rejected.redriving.redrive` does.

        Return the counts of a RedriveReport.
        """
        topic = self._config.require_delay_topic(order.selection.topic)
        return redriving.redrive(self._config, self._admin, topic, order, on_progress).as_json()

    def table(self) -> PolicyTable:
        """Return all policies, at most ``FRESH_FOR_S`` old, with every change that these operations have made."""
        return self._look.table()

    def policies(self) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
        """Return the values of every policy by scope, and the unreadable policies with the reason of each."""
        table = self.table()
        return {str(scope): plain_of(policy) for scope, policy in table.policies.items()}, dict(table.unreadable)

    def policy_changes(self) -> list[dict[str, Any]]:
        """Return the changes of policies, the newest first, as :meth:`sidecar.policies.origin.Change.as_json` does."""
        return [each.as_json() for each in reversed(self.table().changes)]

    def effective(self, topic: str, target: str = "") -> dict[str, EffectiveValue]:
        """Return every key with its value and origin for a delay topic, or for one of its targets."""
        return effective(self.table().at(self._now_ms()), self._config, topic, target)

    def replace_policy(self, scope: Scope, values: Mapping[str, object]) -> dict[str, Any]:
        """Make these values, as JSON spells them, the whole policy of a scope; return them."""
        with self._lock:
            return self._write(self._newest(), scope, policy_of(scope, values))

    def change_policy(self, scope: Scope, values: Mapping[str, object], unset: Iterable[str] = ()) -> dict[str, Any]:
        """Set some values of a policy and unset others; return all values of the policy."""
        with self._lock:
            table = self._newest()
            if scope in table.doubtful:
                why = table.unreadable.get(str(scope), "")
                raise ConfigError(f"policy {scope} cannot be read ({why}); replace it as a whole, or remove it")
            return self._write(table, scope, changed(scope, table.at(self._now_ms()).get(scope), values, unset))

    def remove_policy(self, scope: Scope) -> None:
        """Remove the policy of a scope; less specific policies hold from then on."""
        self.replace_policy(scope, {})

    def switch(self, scope: Scope, key: SwitchKey, *, on: bool, until_ms: int | None = None, reason: str = "") -> None:
        """Pause or drain a delay topic, pause a target, or end either; a pause may have an end and a reason."""
        if on:
            if scope.kind is ScopeKind.TARGET:
                self._require_target(scope.name)
            # A new pause keeps neither the end nor the reason of an earlier one.
            unset = PAUSE_TERMS if key == "paused" else ()
            self.change_policy(scope, {key: True, **pause_terms(until_ms, reason)}, unset)
            return
        self.change_policy(scope, {}, unset=[key])
        if scope.kind is ScopeKind.TOPIC and self.effective(scope.name)[key].value:
            # The policy of all delay topics still has it on: this topic is an exception from now on.
            self.change_policy(scope, {key: False})

    def _rules(self, topic: str) -> Rules:
        try:
            return settings_of(self.table(), self._config, self._config.require_delay_topic(topic)).rules
        except ValueError as error:
            why = f"the policies of {topic} cannot be reconciled with the configuration: {error}"
            raise IrreconcilableError(why) from None

    def _require_target(self, target: str) -> None:
        if not any(self._rules(topic.name).allowed(target) for topic in self._config.delay_topics):
            raise ConfigError(f"no delay topic of this router may deliver to {target}; see allowed_targets")

    def _newest(self) -> PolicyTable:
        self._policies.settle()
        return self._policies.table

    def _write(self, table: PolicyTable, scope: Scope, policy: Policy) -> dict[str, Any]:
        name, until_ms = self._config.router.policies_topic, policy.paused_until_ms
        if until_ms is not None and until_ms <= self._now_ms():
            raise ConfigError(f"policy {scope}: paused_until: {format_instant(until_ms)} is over; name a later time")
        values = plain_of(policy)
        written = policy if values else None
        if written is not None:
            if len(encode(written)) > MAX_POLICY_BYTES:
                raise ConfigError(f"policy {scope}: it is longer than {MAX_POLICY_BYTES} bytes; use fewer patterns")
            refuse_impossible(with_policy(table, scope, written), self._config, scope)
        # A write to a missing topic might create it with the brokers' defaults.
        if name and topic_facts(self._admin, [name])[name] is None:
            raise ConfigError(f"policies topic {name} does not exist; create it: delay-router init")
        try:
            write_policy(self._config, scope, written, self.origin)
            self._policies.settle()
        finally:
            self._look.expire()
        return values


class _PolicyLook:
    """Looks at the policies for readers, who share a look that is fresh enough."""

    def __init__(self, policies: Policies) -> None:
        self._policies = policies
        self._looking = threading.Lock()
        self._table: PolicyTable | None = None
        self._looked_s = 0.0
        self._changes = self._seen_changes = 0

    def table(self) -> PolicyTable:
        with self._looking:
            now_s, changes = time.monotonic(), self._changes
            if self._table is None or now_s - self._looked_s > FRESH_FOR_S or changes != self._seen_changes:
                self._policies.settle()
                self._table = self._policies.table
                self._looked_s, self._seen_changes = now_s, changes
            return self._table

    def expire(self) -> None:
        """Let the next reader look again, also while another reader looks."""
        self._changes += 1
