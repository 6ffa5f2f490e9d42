"""Operations for an operator while routers run: set policies, pause and resume, drain.

Every operation is written to the policies topic. Every router on every host sees it within a second, also a router that
starts later. No operation waits until a partition follows: the status of the partition tells how far it has come.

* A pause of a delay topic: no record is released any more. Records that come in are indexed and sealed, so memory is
  bounded. Only a late record (its due time is at or before the watermark) holds up the cursor. After 10,000 offsets
  behind the cursor, or a quarter of the memory for payload, the intake waits. The delay topic keeps later records by
  its retention.
* A pause of a target: records for the target are held back, within the bounds of :mod:`sidecar.engine.release.gate`,
  and records for other targets pass. The pause of a delay topic holds for all its targets, under any policy of a
  target.
* The drain of a delay topic, before maintenance: each of its partitions takes no record in any more, commits, and seals
  the records in memory. Then its worker gives it up: no producer, no consumer and no open transaction is left. The next
  owner finds all records in buckets.

Of two changes of one scope at the same time the later one wins as a whole, also for keys that it did not name. People
change policies, a few times a day.
"""

import threading
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from typing import Self

from confluent_kafka.admin import AdminClient

from index.errors import ConfigError
from sidecar import clock
from sidecar.config.model import Config
from sidecar.config.units import format_instant
from sidecar.kafka.client.admin import topic_facts
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
from sidecar.policies.topic import write_policy


class Operations:
    """The operations of the admin API and the command line; any thread may call them.

    Every method raises ConfigError with key and remedy if a value is impossible, and KafkaException if the cluster does
    not answer.
    """

    def __init__(
        self,
        config: Config,
        admin: AdminClient,
        policies: Policies,
        now_ms: Callable[[], int] = clock.now_ms,
        origin: ChangeOrigin = NOBODY,
    ) -> None:
        self._config = config
        self._admin = admin
        self._policies = policies
        self._now_ms = now_ms
        self.origin = origin
        self._lock = threading.Lock()

    def by(self, origin: ChangeOrigin) -> Self:
        """Return operations whose changes name this origin."""
        made = copy(self)
        made.origin = origin
        return made

    def table(self) -> PolicyTable:
        """Return the current table of policies."""
        self._policies.settle()
        return self._policies.table

    def effective(self, topic: str, target: str = "") -> dict[str, EffectiveValue]:
        """Return every key with its value and origin for a delay topic, or for one of its targets."""
        return effective(self.table().at(self._now_ms()), self._config, topic, target)

    def replace(self, scope: Scope, values: Mapping[str, object]) -> Policy:
        """Make these values, as JSON spells them, the whole policy of a scope."""
        with self._lock:
            return self._write(self.table(), scope, policy_of(scope, values))

    def change(self, scope: Scope, values: Mapping[str, object], unset: Iterable[str] = ()) -> Policy:
        """Set some values of a policy and unset others."""
        with self._lock:
            table = self.table()
            if scope in table.doubtful:
                why = table.unreadable.get(str(scope), "")
                raise ConfigError(f"policy {scope} cannot be read ({why}); replace it as a whole, or remove it")
            return self._write(table, scope, changed(scope, table.at(self._now_ms()).get(scope), values, unset))

    def remove(self, scope: Scope) -> None:
        """Remove the policy of a scope; less specific policies hold from then on."""
        self.replace(scope, {})

    def switch(self, scope: Scope, key: SwitchKey, *, on: bool, until_ms: int | None = None, reason: str = "") -> None:
        """Pause or drain a delay topic, pause a target, or end either; a pause may have an end and a reason."""
        if scope.kind is ScopeKind.TARGET and on:
            self._require_target(scope.name)
        if on:
            terms = pause_terms(until_ms, reason)
            # A new pause keeps neither the end nor the reason of an earlier one.
            self.change(scope, {key: True, **terms}, unset=PAUSE_TERMS if key == "paused" else ())
            return
        self.change(scope, {}, unset=[key])
        if scope.kind is ScopeKind.TOPIC and self.effective(scope.name)[key].value:
            # The policy of all delay topics still has it on: this topic is an exception from now on.
            self.change(scope, {key: False})

    def _require_target(self, target: str) -> None:
        table, config = self.table(), self._config
        if not any(settings_of(table, config, topic).rules.allowed(target) for topic in config.delay_topics):
            raise ConfigError(f"no delay topic of this router may deliver to {target}; see allowed_targets")

    def _write(self, table: PolicyTable, scope: Scope, policy: Policy) -> Policy:
        name, until_ms = self._config.router.policies_topic, policy.paused_until_ms
        if until_ms is not None and until_ms <= self._now_ms():
            raise ConfigError(f"policy {scope}: paused_until: {format_instant(until_ms)} is over; name a later time")
        written = policy if plain_of(policy) else None
        if written is not None:
            if len(encode(written)) > MAX_POLICY_BYTES:
                raise ConfigError(f"policy {scope}: it is longer than {MAX_POLICY_BYTES} bytes; use fewer patterns")
            refuse_impossible(with_policy(table, scope, written), self._config, scope)
        # A write to a missing topic might create it with the brokers' defaults.
        if name and topic_facts(self._admin, [name])[name] is None:
            raise ConfigError(f"policies topic {name} does not exist; create it: delay-router init")
        write_policy(self._config, scope, written, self.origin)
        self._policies.settle()
        return policy
