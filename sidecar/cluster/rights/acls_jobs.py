"""Lists the rights of Spark jobs and of ``rejected redrive``, and no more; ``check --acls --job index`` prints them.

A job works beside the router and may have a principal of its own: it never writes state, never joins the router's group
and releases nothing. Its consumers name the router's group, which needs only Describe on it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from sidecar.cluster.rights.acls import (
    DESCRIBE,
    DESCRIBE_CONFIGS,
    GROUP,
    LITERAL,
    PREFIXED,
    READ,
    TOPIC,
    TRANSACTIONAL_ID,
    WRITE,
    Acl,
    NeededRights,
    of_targets,
)
from sidecar.config.model import Config


def needed(config: Config, jobs: Iterable[str]) -> NeededRights:
    """Return every right that the given jobs, names in JOBS, need for all delay topics of a configuration."""
    chosen = list(dict.fromkeys(jobs))
    acls = [acl for job in chosen for acl in JOBS[job](config)]
    first = {(acl.resource, acl.operation): acl for acl in reversed(acls)}
    places = {resource: number for number, resource in enumerate(dict.fromkeys(acl.resource for acl in acls))}
    ordered = sorted(first.values(), key=lambda acl: (places[acl.resource], acl.operation))
    notes = [note for job in chosen if job in _OF_TARGETS for note in of_targets(config, _OF_TARGETS[job])[1]]
    return NeededRights(tuple(ordered), tuple(dict.fromkeys(notes)))


def _index(config: Config) -> Iterator[Acl]:
    for topic in config.delay_topics:
        yield _on(topic.name, READ, "read the records to index")
        if topic.placement == "auto":
            yield _on(topic.name, DESCRIBE_CONFIGS, "point into it only where its retention is long enough")
        yield _on(topic.state, READ, "see how far the router is, and by which rules it decides")
        yield _on(topic.snapshots, WRITE, "write segments")
        yield _on(topic.backfill, READ, "find the buckets that an earlier run has staged")
        yield _on(topic.backfill, WRITE, "stage, in one transaction")
        transactions = f"{config.router.group_id}~{topic.name}~"
        yield Acl(TRANSACTIONAL_ID, transactions, PREFIXED, WRITE, "stage, in one transaction")
    yield _group(config)


def _export(config: Config) -> Iterator[Acl]:
    for topic in config.delay_topics:
        yield _on(topic.name, READ, "read the records that are not in segments")
        yield _on(topic.state, READ, "see which records are pending")
        yield _on(topic.snapshots, READ, "read segments")
        yield _on(topic.backfill, WRITE, "keep segments from being trimmed meanwhile")
    yield _group(config)


def _rebuild(config: Config) -> Iterator[Acl]:
    yield from _index(config)
    for topic in config.delay_topics:
        if topic.recurring:
            yield _on(topic.snapshots, READ, "see whether the key that signs occurrences is left")
        yield from _witness(_on(topic.receipts, READ, "find the controls that were acted on"))
    yield from _released(config, "find the released records")
    if config.router.policies_topic:
        yield _on(config.router.policies_topic, READ, "see which targets policies have named")


def _schedule(config: Config) -> Iterator[Acl]:
    for topic in config.delay_topics:
        yield _on(topic.name, READ, "remember which rows are done, as offsets of it")
        yield _on(topic.name, WRITE, "write the rows")
        yield _on(topic.name, DESCRIBE_CONFIGS, "compare rows with the largest record it takes")
    yield from _on_targets(config, DESCRIBE, "see whether it exists")
    own = f"{config.router.group_id}.schedule."
    yield Acl(GROUP, own, PREFIXED, READ, "remember which rows are done")
    yield Acl(TRANSACTIONAL_ID, own, PREFIXED, WRITE, "write rows, and how many are done, in one transaction")


def _audit(config: Config) -> Iterator[Acl]:
    for topic in config.delay_topics:
        yield _on(topic.name, READ, "find the records that were sent")
        yield _on(topic.name, DESCRIBE_CONFIGS, "see whether it has append times")
        yield from _witness(_on(topic.receipts, READ, "read the receipts of controls"))
    yield from _released(config, "find the released records, and their times")
    yield _group(config)


def _redrive(config: Config) -> Iterator[Acl]:
    for topic in config.delay_topics:
        yield _on(topic.rejected, READ, "read rejected records, and the marks of those driven again")
        yield _on(topic.rejected, WRITE, "mark the records that are driven again, in the same transaction")
        yield _on(topic.name, WRITE, "drive rejected records again")
        own = f"{config.router.group_id}.{topic.rejected}.redrive"
        yield Acl(TRANSACTIONAL_ID, own, LITERAL, WRITE, "drive each once, and one at a time")
    yield _group(config)


def _released(config: Config, why: str) -> Iterator[Acl]:
    for topic in config.delay_topics:
        yield from _witness(_on(topic.rejected, READ, "find the rejected records"))
    for acl in _on_targets(config, READ, why):
        yield from _witness(acl)


def _witness(read: Acl) -> Iterator[Acl]:
    yield read
    yield read._replace(operation=DESCRIBE_CONFIGS, why="see whether all that was written can still be there")


def _on_targets(config: Config, operation: str, why: str) -> Iterator[Acl]:
    for acl in of_targets(config)[0]:
        yield acl._replace(operation=operation, why=why)


def _on(name: str, operation: str, why: str) -> Acl:
    return Acl(TOPIC, name, LITERAL, operation, why)


def _group(config: Config) -> Acl:
    return Acl(GROUP, config.router.group_id, LITERAL, DESCRIBE, "named by consumers that join nothing")


JOBS: Final[Mapping[str, Callable[[Config], Iterator[Acl]]]] = {
    "index": _index,
    "rebuild": _rebuild,
    "schedule": _schedule,
    "audit": _audit,
    "export": _export,
    "redrive": _redrive,
}

_OF_TARGETS: Final = {
    "rebuild": f"{READ} and {DESCRIBE_CONFIGS}",
    "schedule": DESCRIBE,
    "audit": f"{READ} and {DESCRIBE_CONFIGS}",
}
"""Rights of a job on target topics, in words."""
