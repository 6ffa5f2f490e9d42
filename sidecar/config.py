"""The configuration: one frozen model, read from a TOML file and the environment, checked before anything runs.

Defaults, descriptions and limits live on the fields, and the reference of all keys is generated from them
(``config_reference``). Every error is a ``ConfigError`` that names key and file; on the command line it is exit
code 2. A duration or size is written with its unit in the file and kept with its unit in the attribute's name.
"""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from index.errors import ConfigError
from index.headers import PRESETS, Alias, Role, Unit
from index.rules import Rules
from sidecar import kafka_keys
from sidecar.config_errors import Problems, describe, key_path
from sidecar.config_sources import Place, read
from sidecar.config_types import (
    KafkaValue,
    ListenAddress,
    OptionalTopicName,
    Printable,
    TargetPattern,
    TopicName,
    topic_name,
)
from sidecar.units import Count, DurationMs, SizeBytes

DAY_MS: Final = 86_400_000


class Section(BaseModel):
    """Frozen, and no key that is not declared."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=False)


class RouterConfig(Section):
    """``[router]``: how the router works, the same for all delay topics."""

    group_id: Printable = Field(
        "delay-router",
        min_length=1,
        max_length=200,
        description="Consumer group for assignment, and prefix of every transactional.id.",
    )
    instance_id: Printable = Field(
        "",
        max_length=200,
        description="Static membership: a restart under the same name takes its partitions back at once. "
        "Unique per running router; empty: none.",
    )
    tick_ms: DurationMs = Field(
        10,
        alias="tick",
        le=10_000,
        description="Most time a due record waits to share a transaction with others.",
    )
    batch_records: Count = Field(
        50_000, ge=1, le=1_000_000, description="Most records released, or indexed, within one transaction."
    )
    payload_memory_bytes: SizeBytes = Field(
        512 << 20,
        alias="payload_memory",
        description="Payload of pending records kept in memory, for all partitions of this process together; "
        "beyond it records are read again from the delay topic when due.",
    )
    session_timeout_ms: DurationMs = Field(
        10_000,
        alias="session_timeout",
        ge=1_000,
        le=1_800_000,
        description="After this long without a sign of life the partitions of a router go to another one. "
        "Brokers refuse less than their group.min.session.timeout.ms (6s).",
    )
    transaction_timeout_ms: DurationMs = Field(
        60_000,
        alias="transaction_timeout",
        ge=1_000,
        le=900_000,
        description="The broker aborts a transaction left open this long. "
        "Brokers refuse more than their transaction.max.timeout.ms (15m).",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Least severe log lines that are written."
    )


class HttpConfig(Section):
    """``[http]``: probes and metrics."""

    listen: ListenAddress = Field(
        "127.0.0.1:8080",
        description="Address of /livez, /readyz and /metrics. They show topic names and counts, no records; "
        "to let a probe or Prometheus in from outside, 0.0.0.0:8080.",
    )

    @property
    def host(self) -> str:
        """Host part of the address, without the brackets of IPv6."""
        return self.listen.rpartition(":")[0].strip("[]")

    @property
    def port(self) -> int:
        """Port; 0 lets the system choose."""
        return int(self.listen.rpartition(":")[2])


class AliasConfig(Section):
    """Another system's headers: either a whole preset, or one header by name, role and unit."""

    preset: Literal["", "cesium", "etf1", "karafka", "timebridge"] = Field(
        "", description='All headers of a system; written as a plain string: aliases = ["cesium"].'
    )
    name: str = Field("", max_length=255, description="The header's name.")
    role: Literal["", "at", "after", "to", "key", "partition", "id", "ignored"] = Field(
        "",
        description="Which control header it stands for, deliver-<role>; ignored: only removed on release.",
    )
    unit: Literal["native", "ms", "s", "rfc3339", "iso8601"] = Field(
        "native",
        description="How the times of at and after are written; native: as deliver-at and deliver-after are.",
    )

    @model_validator(mode="before")
    @classmethod
    def _preset_as_text(cls, raw: object) -> object:
        return {"preset": raw} if isinstance(raw, str) else raw

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if self.preset and (self.name or self.role):
            raise ValueError("an alias is either the name of a preset or a table with name, role and unit")
        if not self.preset and not (self.name and self.role):
            raise ValueError('an alias needs name and role, as in {name = "x-due", role = "at", unit = "s"}')
        return self

    def expanded(self) -> tuple[Alias, ...]:
        """The headers it stands for, in the terms of ``index.headers``."""
        return PRESETS[self.preset] if self.preset else (Alias(self.name, Role(self.role), Unit(self.unit)),)


class DelayTopicConfig(Section):
    """``[[delay_topics]]``: one delay topic and what may be delivered from it."""

    name: TopicName = Field(description="The delay topic: what producers write to.")
    default_target: OptionalTopicName = Field("", description="Target topic of records without deliver-to.")
    allowed_targets: tuple[TargetPattern, ...] = Field(
        (),
        description="Topics that deliver-to may name; '*' is the only wildcard, the whole name has to match. "
        "Empty: only default_target.",
    )
    max_delay_ms: DurationMs = Field(
        7 * DAY_MS,
        alias="max_delay",
        description='Longest time between a record\'s timestamp and its due time; "0": no limit.',
    )
    timestamp: Literal["release", "due", "source"] = Field(
        "release", description="Timestamp of a released record: when it is released, was due, or was sent."
    )
    aliases: tuple[AliasConfig, ...] = Field(
        (),
        description="Headers of other systems that mean the same: presets (cesium, etf1, karafka, timebridge) "
        'or tables {name = "x-due", role = "at", unit = "s"}.',
    )
    state_topic: OptionalTopicName = Field("", description="Progress and manifests; empty: <name>.delay-state.")
    snapshots_topic: OptionalTopicName = Field("", description="Segments; empty: <name>.delay-snapshots.")
    rejected_topic: OptionalTopicName = Field("", description="Rejected records; empty: <name>.rejected.")
    backfill_topic: OptionalTopicName = Field("", description="Staged backfills; empty: <name>.delay-backfill.")

    @property
    def state(self) -> str:
        """Effective name of the state topic."""
        return self.state_topic or f"{self.name}.delay-state"

    @property
    def snapshots(self) -> str:
        """Effective name of the snapshots topic."""
        return self.snapshots_topic or f"{self.name}.delay-snapshots"

    @property
    def rejected(self) -> str:
        """Effective name of the rejected topic."""
        return self.rejected_topic or f"{self.name}.rejected"

    @property
    def backfill(self) -> str:
        """Effective name of the backfill topic."""
        return self.backfill_topic or f"{self.name}.delay-backfill"

    def roles(self) -> Iterator[tuple[str, str, str]]:
        """(role, configuration key, effective name) of each topic the router keeps for this delay topic."""
        yield "delay topic", "name", self.name
        yield "state topic", "state_topic", self.state
        yield "snapshots topic", "snapshots_topic", self.snapshots
        yield "rejected topic", "rejected_topic", self.rejected
        yield "backfill topic", "backfill_topic", self.backfill


class Config(Section):
    """The whole configuration, valid as a whole."""

    kafka: dict[str, KafkaValue] = Field(
        description="Handed to librdkafka as it is, security included; bootstrap.servers is required.",
    )
    router: RouterConfig = RouterConfig()
    http: HttpConfig = HttpConfig()
    delay_topics: tuple[DelayTopicConfig, ...] = ()

    @model_validator(mode="after")
    def _whole(self) -> Self:
        problems = [*self._kafka_problems(), *self._role_problems(), *self._target_problems()]
        # Rules check the same names once more; what they add is worth saying only when these are right.
        if problems := problems or [*self._rules_problems()]:
            raise Problems(problems)
        return self

    def rules_for(self, topic: DelayTopicConfig) -> Rules:
        """The rules in force for one delay topic, with every topic of the router as a forbidden target."""
        return Rules(
            topic=topic.name,
            default_target=topic.default_target,
            allowed_targets=topic.allowed_targets,
            max_delay_ms=topic.max_delay_ms,
            aliases=tuple(alias for configured in topic.aliases for alias in configured.expanded()),
            forbidden_targets=self.forbidden_targets(),
        )

    def forbidden_targets(self) -> frozenset[str]:
        """Exact names that are never a target, whatever is allowed: every topic the router keeps."""
        return frozenset(name for topic in self.delay_topics for _, _, name in topic.roles())

    def delay_topic(self, name: str) -> DelayTopicConfig | None:
        """The configured delay topic of that name."""
        return next((topic for topic in self.delay_topics if topic.name == name), None)

    def require_delay_topics(self) -> None:
        """ConfigError when there is nothing to work on; for commands that need at least one."""
        if not self.delay_topics:
            raise ConfigError("delay_topics: no delay topic is configured; add a [[delay_topics]] table with a name")

    def _kafka_problems(self) -> Iterator[tuple[Place, str]]:
        if not self.kafka.get("bootstrap.servers") and not self.kafka.get("metadata.broker.list"):
            yield ("kafka", "bootstrap.servers"), 'required, as in "bootstrap.servers" = "localhost:9092"'
        for key, value in self.kafka.items():
            if problem := kafka_keys.refusal(key, value):
                yield ("kafka", key), problem

    def _role_problems(self) -> Iterator[tuple[Place, str]]:
        seen: dict[str, tuple[str, Place]] = {}
        for number, topic in enumerate(self.delay_topics):
            for role, key, name in topic.roles():
                place: Place = ("delay_topics", number, key)
                try:
                    topic_name(name)
                except ValueError as error:
                    yield place, str(error)
                other_role, other_place = seen.setdefault(name, (role, place))
                shared = role == other_role == "rejected topic"
                if other_place != place and not shared:
                    where = key_path(other_place)
                    yield place, f"{name!r} is already the {other_role} ({where}); name another topic"

    def _target_problems(self) -> Iterator[tuple[Place, str]]:
        forbidden = self.forbidden_targets()
        for number, topic in enumerate(self.delay_topics):
            named = [("default_target", topic.default_target), *(("allowed_targets", t) for t in topic.allowed_targets)]
            for key, name in named:
                if name in forbidden:
                    yield ("delay_topics", number, key), f"{name!r} is the router's own and never a target"

    def _rules_problems(self) -> Iterator[tuple[Place, str]]:
        for number, topic in enumerate(self.delay_topics):
            try:
                self.rules_for(topic)
            except ValueError as error:
                yield ("delay_topics", number), str(error)


def load(path: Path | None = None, environ: Mapping[str, str] | None = None) -> Config:
    """The configuration of `path` (else ``DELAY_ROUTER_CONFIG``, else ``./delay-router.toml``) and environment.

    Raises ConfigError: one line per problem, each naming key and file (or variable).
    """
    sources = read(path, os.environ if environ is None else environ)
    raw: dict[str, Any] = {"kafka": {}, **sources.raw}
    try:
        return Config.model_validate(raw)
    except ValidationError as error:
        raise ConfigError(describe(error, sources, Config)) from None
