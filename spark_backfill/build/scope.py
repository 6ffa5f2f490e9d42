"""The offsets of a job: the requested ones, checked against the log and the router's state.

All problems of the request are found here, before any work begins, and reported with their remedy.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from index.buckets.bucket_rules import PlacementRule
from index.errors import FormatError, StateLostError
from snapshots.state.series_key import COPY_KEY
from snapshots.state.state import PROGRESS_KEY, StoredState, fold_state, series_key_of
from spark_backfill import cluster
from spark_backfill.cluster import LogRange, Topic
from spark_backfill.errors import JobError
from spark_backfill.settings import DelayTopic, Settings
from spark_backfill.source import OffsetRange


@dataclass(frozen=True, slots=True)
class Asked:
    """The request of the command line: partitions (all when empty), and first and last offset of each where given."""

    partitions: tuple[int, ...] = ()
    starts: Mapping[int, int] | None = None
    ends: Mapping[int, int] | None = None


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """The facts of the cluster about a delay topic: its id, the log of each partition, and the router's state of it.

    ``lost`` maps partitions with an incomplete state to the missing part; no router uses the remainder.
    """

    delay: Topic
    logs: Mapping[int, LogRange]
    states: Mapping[int, StoredState | None]
    lost: Mapping[int, str] = field(default_factory=dict)


def look(settings: Settings, topic: DelayTopic, admin: AdminClient, asked: Asked) -> ClusterFacts:
    """Ask the cluster; raise JobError when a topic is missing, does not fit, or its state cannot be understood."""
    delay = there(settings, topic, admin)
    partitions = chosen(asked, delay)
    logs = cluster.log_ranges(admin, topic.name, partitions)
    ends = cluster.log_ranges(admin, topic.state, partitions)
    states: dict[int, StoredState | None] = dict.fromkeys(partitions)
    lost: dict[int, str] = {}
    for partition in partitions:
        try:
            states[partition] = _state(settings, topic.state, partition, ends[partition].end)
        except StateLostError as error:
            lost[partition] = str(error)
    return ClusterFacts(delay, logs, states, lost)


def there(settings: Settings, topic: DelayTopic, admin: AdminClient) -> Topic:
    """Return the delay topic; JobError when a topic is missing, or when the numbers of partitions differ."""
    found = cluster.topics(admin, [topic.name, topic.state, topic.snapshots, topic.backfill])
    delay = found.get(topic.name)
    if delay is None:
        raise JobError(f"delay topic {topic.name} does not exist; is {settings.source} the router's configuration?")
    for name in (topic.state, topic.snapshots, topic.backfill):
        has = found[name].partitions if name in found else 0
        if has != delay.partitions:
            raise JobError(
                f"topic {name} has {has} partitions and {topic.name} has {delay.partitions}; to create or see how to"
                " mend it: delay-router init"
            )
    return delay


def chosen(asked: Asked, delay: Topic) -> list[int]:
    """Return the requested partitions; raise JobError for one that does not exist."""
    named = {*asked.partitions, *(asked.starts or ()), *(asked.ends or ())}
    for partition in sorted(named):
        if not 0 <= partition < delay.partitions:
            raise JobError(f"{delay.name} has partitions 0 to {delay.partitions - 1}, and no partition {partition}")
    return sorted(asked.partitions) or list(range(delay.partitions))


def _state(settings: Settings, name: str, partition: int, end: int) -> StoredState | None:
    try:
        return fold_state(cluster.records_of(settings, name, partition, end))
    except StateLostError:
        raise
    except FormatError as error:
        raise JobError(f"state topic {name}/{partition} cannot be understood: {error}") from error


def index_ranges(topic: DelayTopic, known: ClusterFacts, asked: Asked) -> list[OffsetRange]:
    """Return the ranges to index: from the cursor, or the start of the log, to its end, unless others were requested.

    Partitions whose range the router has indexed are left out. JobError has a line for each problem.
    """
    problems: list[str] = []
    ranges = []
    for partition, log in known.logs.items():
        state = known.states[partition]
        place = f"{topic.name}/{partition}"
        problems += _problems_of_state(topic, known, partition)
        cursor = log.start if state is None else state.progress.cursor
        start = (asked.starts or {}).get(partition, max(cursor, log.start))
        end = (asked.ends or {}).get(partition, log.end)
        problems += _problems_of_range(place, log, start, end)
        if state is not None and partition in (asked.ends or {}) and end <= cursor:
            problems.append(f"{place}: the router has indexed everything below {cursor}, and --to is {end}")
        if start < end and end > cursor:
            ranges.append(OffsetRange(partition, start, end))
    if problems:
        raise JobError("\n".join(problems))
    return ranges


def _problems_of_range(place: str, log: LogRange, start: int, end: int) -> list[str]:
    problems = []
    if end > log.end:
        problems.append(
            f"{place}: the log ends at offset {log.end}, and {end} was asked for; leave --to out for its end"
        )
    if start < log.start:
        problems.append(
            f"{place}: retention has removed the records below offset {log.start}, and {start} was asked for; leave"
            " --from out, or start there"
        )
    if start > end:
        problems.append(f"{place}: nothing lies between --from {start} and --to {end}")
    return problems


def _problems_of_state(topic: DelayTopic, known: ClusterFacts, partition: int) -> list[str]:
    state = known.states[partition]
    place = f"{topic.name}/{partition}"
    if partition in known.lost:
        return [f"{place}: {known.lost[partition]}; to make the state anew: python -m spark_backfill rebuild"]
    if state is None:
        return []
    if state.delay_topic_id != known.delay.topic_id:
        problem = (
            f"{place}: the topic was deleted and created again (id {known.delay.topic_id}, the router's state is about"
            f" {state.delay_topic_id}); to forget the old one: delay-router start-over {place}"
        )
        return [problem]
    if state.history.in_force != topic.rules:
        problem = (
            f"{place}: the router decides by other rules than this configuration; start it with the same"
            " configuration first, or name the one that it runs with by --config. Where a policy has changed the rules,"
            " put the same into the configuration, or remove it while the job runs and its buckets are adopted"
        )
        return [problem]
    return []


def rebuild_ranges(settings: Settings, topic: DelayTopic, known: ClusterFacts, members: list[str]) -> list[OffsetRange]:
    """Return all offsets of partitions that have lost their state; JobError where a state is whole, or a router works.

    A partition whose log is empty by now gets its last offset, because the router has to know where to go on.
    """
    if members:
        raise JobError(
            f"group {settings.group_id} has members ({', '.join(members[:3])}): stop the routers, so that nothing is"
            " released while the job counts. A router that has just stopped stays a member until its session_timeout"
        )
    # Partitions that never held a record have a state, too: `init` has written where they begin.
    standing = [
        partition for partition, state in known.states.items() if state is not None and known.logs[partition].end
    ]
    if standing:
        raise JobError(
            f"state topic {topic.state} has the state of partitions {standing}: it is not lost, and nothing has to be"
            " rebuilt there. Name the lost ones by --partition"
        )
    logs = known.logs.items()
    return [OffsetRange(partition, min(log.start, log.end - 1), log.end) for partition, log in logs if log.end]


def without_series_key(settings: Settings, topic: DelayTopic, admin: AdminClient, known: ClusterFacts) -> list[int]:
    """Return the partitions that have lost the key that signs occurrences; none where schedules cannot recur."""
    if not topic.rules.recurring:
        return []
    states, copies = (cluster.log_ranges(admin, name, known.logs) for name in (topic.state, topic.snapshots))

    def has_key(partition: int) -> bool:
        state = dict(cluster.records_of(settings, topic.state, partition, states[partition].end))
        if series_key_of(state.get(PROGRESS_KEY) or b""):
            return True
        copied = cluster.records_of(settings, topic.snapshots, partition, copies[partition].end)
        return any(key == COPY_KEY and value for key, value in copied)

    return [partition for partition in known.logs if not has_key(partition)]


def placement(admin: AdminClient, topic: DelayTopic) -> PlacementRule:
    """Return the placement rule in force: ``auto`` points into the delay topic only where retention is long enough."""
    if topic.seal_rules.placement != "auto":
        return topic.seal_rules.placement
    resource = ConfigResource(ResourceType.TOPIC, topic.name)
    (future,) = admin.describe_configs([resource], request_timeout=cluster.REQUEST_TIMEOUT_S).values()
    settings = {name: entry.value or "" for name, entry in future.result(cluster.REQUEST_TIMEOUT_S + 1).items()}
    if "delete" not in settings["cleanup.policy"]:
        return "auto"
    keeps_ms, longest_ms = int(settings["retention.ms"]), topic.rules.max_delay_ms
    keeps = keeps_ms < 0 or 0 < longest_ms <= keeps_ms
    return "auto" if keeps and int(settings["retention.bytes"]) < 0 else "inline"
