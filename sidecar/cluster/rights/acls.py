"""Lists the rights that a router needs and no more, from its configuration alone; ``check --acls`` prints them.

In Kafka every right to Read, Write or Delete implies Describe, so Describe is not on the list. The list has no right on
the cluster: the router creates, alters and describes nothing there. ``init`` needs such rights; a principal that may
create topics runs it.

An ACL knows names and prefixes. An allowed target such as ``billing.*`` has a prefix; ``*.out`` has none, so a note
asks the operator to grant Write on the targets by name.
"""

import shlex
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Final, NamedTuple

from sidecar.config.delay_topic import DelayTopicConfig
from sidecar.config.model import Config
from sidecar.kafka.client.commands import ANY_ROUTER, acl_command

READ: Final = "Read"
WRITE: Final = "Write"
DELETE: Final = "Delete"
DESCRIBE: Final = "Describe"
DESCRIBE_CONFIGS: Final = "DescribeConfigs"

TOPIC: Final = "topic"
GROUP: Final = "group"
TRANSACTIONAL_ID: Final = "transactional-id"
_SEE_OWN: Final = "find its own transactions that the brokers have left open"
LITERAL: Final = "literal"
PREFIXED: Final = "prefixed"


class Acl(NamedTuple):
    """One binding, in the terms of ``kafka-acls.sh``; `why` is for people."""

    resource_type: str
    name: str
    pattern_type: str
    operation: str
    why: str

    def as_json(self) -> dict[str, str]:
        """Return the binding as a JSON object, for scripts."""
        return dict(zip(self._fields, self, strict=True))

    @property
    def resource(self) -> tuple[str, str, str]:
        """Resource of the right: type, name and pattern type, as kafka-acls.sh names them."""
        return self.resource_type, self.name, self.pattern_type


class NeededRights(NamedTuple):
    """The needed rights, and notes about rights that no ACL can express."""

    acls: tuple[Acl, ...]
    notes: tuple[str, ...]

    def as_json(self, principal: str) -> dict[str, object]:
        """Return the rights of a principal as a JSON object, for scripts."""
        return {
            "principal": principal,
            "acls": [acl.as_json() for acl in self.acls],
            "notes": [*self.notes],
        }


def needed(config: Config) -> NeededRights:
    """Return every right that a router with this configuration needs; each of them is necessary."""
    group_id = config.router.group_id
    of_topics = [acl for topic in config.delay_topics for acl in _of_delay_topic(topic)]
    targets, notes = of_targets(config, f"{WRITE} and {READ}")
    policies = [*_of_policies(config.router.policies_topic), *_of_status(config.router.status_topic)]
    rest = [
        Acl(GROUP, group_id, LITERAL, READ, "membership, and committed offsets for lag tools"),
        Acl(TRANSACTIONAL_ID, f"{group_id}.", PREFIXED, WRITE, "transactions, and fencing of the last owner"),
    ]
    # Delay topics may share a rejected topic and targets.
    on_targets = [acl for write in targets for acl in (write, write._replace(operation=READ, why=_SEE_OWN))]
    return NeededRights(tuple(dict.fromkeys([*of_topics, *policies, *on_targets, *rest])), tuple(dict.fromkeys(notes)))


def script(needed: NeededRights, bootstrap: str, principal: str = ANY_ROUTER) -> Iterator[str]:
    """Yield the lines of a shell script: one command for each resource, with its reasons as comments."""
    for note in needed.notes:
        yield f"# NOTE: {note}"
    for (resource_type, name, pattern_type), acls in groupby(needed.acls, lambda acl: acl.resource):
        several = [*acls]
        for acl in several:
            yield f"# {acl.operation}: {acl.why}"
        pattern = f" --resource-pattern-type {pattern_type}" if pattern_type != LITERAL else ""
        resource = f"--{resource_type} {shlex.quote(name)}{pattern}"
        yield acl_command(bootstrap, [acl.operation for acl in several], resource, principal)


def _of_delay_topic(topic: DelayTopicConfig) -> Iterator[Acl]:
    def on(name: str, operation: str, why: str) -> Acl:
        return Acl(TOPIC, name, LITERAL, operation, why)

    yield on(topic.name, READ, "index the records of producers")
    yield on(topic.name, WRITE, "write moved schedules and next occurrences, in the transaction of their predecessors")
    yield on(topic.name, DESCRIBE_CONFIGS, "compare its retention with the longest delay")
    if topic.trim:
        yield on(topic.name, DELETE, "trim = true: remove records that nobody needs (DeleteRecords)")
    yield on(topic.state, READ, "take over where the last owner stood")
    yield on(topic.state, WRITE, "progress, in the transaction of the released records")
    yield on(topic.state, DESCRIBE_CONFIGS, "check that it is compacted")
    yield on(topic.snapshots, READ, "load segments")
    yield on(topic.snapshots, WRITE, "seal and merge")
    yield on(topic.snapshots, DELETE, "remove segments of released records (DeleteRecords)")
    yield on(topic.snapshots, DESCRIBE_CONFIGS, "check that nothing removes segments by age or size")
    yield on(topic.backfill, READ, "adopt the buckets that jobs have staged, and trim nothing that they need")
    yield on(topic.backfill, WRITE, "withdraw an adopted bucket, in the transaction that adopts it")
    yield on(topic.backfill, DESCRIBE_CONFIGS, "check that it is compacted")
    yield on(topic.rejected, READ, "look up rejected records")
    yield on(topic.rejected, WRITE, "reject")
    yield on(topic.rejected, DESCRIBE_CONFIGS, "check that it takes each record that the delay topic takes")
    yield on(topic.receipts, READ, "find transactions on it that the brokers have left open")
    yield on(topic.receipts, WRITE, "answer each control")
    yield on(topic.receipts, DESCRIBE_CONFIGS, "check that receipts stay for some days")


def _of_policies(name: str) -> Iterator[Acl]:
    if name:
        yield Acl(TOPIC, name, LITERAL, READ, "follow policies")
        yield Acl(TOPIC, name, LITERAL, DESCRIBE_CONFIGS, "check that it is compacted")


def _of_status(name: str) -> Iterator[Acl]:
    if name:
        yield Acl(TOPIC, name, LITERAL, READ, "answer for all routers of the group")
        yield Acl(TOPIC, name, LITERAL, WRITE, "let all routers of the group answer for this one")
        yield Acl(TOPIC, name, LITERAL, DESCRIBE_CONFIGS, "check that old reports go")


def of_targets(config: Config, rights: str = WRITE) -> tuple[list[Acl], list[str]]:
    """Return the right to Write on every possible target, and notes about targets that no ACL can express.

    ``rights`` names the wanted rights in the text of the notes.
    """
    names: list[str] = []
    prefixes: list[str] = []
    notes: list[str] = []
    own = sorted(config.forbidden_targets())
    for topic in config.delay_topics:
        for target in dict.fromkeys([topic.default_target, *topic.allowed_targets, topic.dead_letter]):
            prefix, star, rest = target.partition("*")
            if not star:
                names.append(target)
            elif prefix:
                prefixes.append(prefix)
                notes += _too_wide(target, prefix, rest.strip("*"), own)
            else:
                notes.append(f"no ACL says {target!r} of {topic.name}: grant {rights} on each of its targets by name")
    why = "release"
    found = [Acl(TOPIC, name, LITERAL, WRITE, why) for name in names if name and not _covered(name, prefixes)]
    found += [
        Acl(TOPIC, prefix, PREFIXED, WRITE, why)
        for prefix in prefixes
        if not _covered(prefix, [other for other in prefixes if other != prefix])
    ]
    return found, notes


def _covered(name: str, prefixes: Sequence[str]) -> bool:
    return any(name.startswith(prefix) for prefix in prefixes)


def _too_wide(target: str, prefix: str, rest: str, own: Iterable[str]) -> Iterator[str]:
    if rest:
        yield f"an ACL on the prefix {prefix!r} is wider than the allowed target {target!r}"
    caught = [name for name in own if name.startswith(prefix)]
    if caught:
        yield f"the prefix {prefix!r} of the allowed target {target!r} also covers {', '.join(caught)}"
