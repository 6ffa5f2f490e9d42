"""What an error of librdkafka means for the partition that met it; every caller asks here and nowhere else.

librdkafka has no KIP-890 client: a commit or produce whose outcome is unknown may still reach the broker and hit a
*later* transaction of the same producer (Jepsen on Bufstream, 2024; librdkafka #5423). So the only errors after which a
producer may be used again are the broker's own clean verdicts about a record. After anything else the producer, the
index and the open batch are thrown away together and the partition is taken over again from its state topic.
"""

import re
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from enum import Enum
from typing import TypeVar

from confluent_kafka import KafkaError, KafkaException

from index.errors import ClusterError, ClusterTrouble
from index.schedule import Reason

T = TypeVar("T")


class Verdict(Enum):
    """What to do after an error.

    After FENCED and DENIED an owned partition is taken over again, as after REBUILD. They have names of their own since
    others act on them: ``start-over`` tries again when it was fenced, and a group member that is not let in says so.
    """

    REFUSED = "abort, find the records the broker refuses, divert them, go on with the same producer"
    RETRY = "make the same call again"
    AGAIN = "abort, which gives the producer a new epoch, and write the same transaction again"
    FENCED = "another producer has taken the place of this one: ask the group who owns the partition"
    DENIED = "the credentials do not allow it: nothing helps but to grant the right, or to be let in"
    MISCONFIGURED = "refuse, with the setting to change: no repetition helps"
    REBUILD = "outcome unknown or producer unusable: take over again from the state topic"


_FENCED = frozenset({KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH})
_DENIED = frozenset(
    {
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError._AUTHENTICATION,
    }
)
_MISCONFIGURED = frozenset({KafkaError.INVALID_TRANSACTION_TIMEOUT})
_TOO_LARGE = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE, KafkaError.INVALID_MSG_SIZE})
_UNKNOWN_TARGET = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
        # How librdkafka ends a transaction with a topic that never appeared in the metadata.
        KafkaError._INCONSISTENT,
    }
)
# What produce says after an earlier record has spoilt the transaction: the cause must be looked for.
_SPOILT = frozenset({KafkaError._STATE})
_REFUSED_RECORD = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.INVALID_TIMESTAMP,
        KafkaError.INVALID_RECORD,
        KafkaError.INVALID_MSG,
        KafkaError.POLICY_VIOLATION,
    }
)
_OF_ONE_RECORD = frozenset({KafkaError.INVALID_RECORD, KafkaError.INVALID_TIMESTAMP})
# Follows a refused batch: its sequence numbers are missing. The broker has answered, so nothing is unknown.
_OUT_OF_ORDER = frozenset({KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER})
# What a consumer says of a batch: that it does not unpack, that it is damaged, or of a format that it does not know.
_UNREADABLE = frozenset({KafkaError._BAD_COMPRESSION, KafkaError._BAD_MSG, KafkaError._NOT_IMPLEMENTED})
# What the client says of a question when it does not know the brokers, has lost one on the way, or takes another for
# the leader.
_STALE_LOOK = frozenset(
    {
        KafkaError._NOENT,
        KafkaError._TRANSPORT,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.FENCED_LEADER_EPOCH,
    }
)
# Codes of the client where no broker has answered in time, or none could be reached.
_UNANSWERED = frozenset(
    {
        KafkaError._TIMED_OUT,
        KafkaError._MSG_TIMED_OUT,
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._RESOLVE,
    }
)
# What a consumer says of an offset that the log no longer holds, where auto.offset.reset is "error".
_REMOVED = frozenset({KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE})
_REFUSALS = _TOO_LARGE | _UNKNOWN_TARGET | _REFUSED_RECORD | _SPOILT


# "... (after 334ms in state UP) (_TRANSPORT)"; missing where the text was too long.
_LOST_IN_STATE = re.compile(r"\(after \d+ms in state ([A-Z_]+)")
_NEVER_UP = frozenset(
    {
        *("INIT", "DOWN", "TRY_CONNECT", "CONNECT", "SSL_HANDSHAKE", "APIVERSION_QUERY"),
        *("AUTH_LEGACY", "AUTH_HANDSHAKE", "AUTH_REQ"),
    }
)
_SUPPRESSED = "error log suppressed"
_CLOSED_BY_BROKER = "Disconnected"


def tells_of_loss(facility: str, text: str, *, is_debug: bool) -> bool:
    """Whether a log line of librdkafka says that a connection was lost on which requests may have been under way.

    Every loss has a debug line. One of a connection that was in use has a second line of another level, unless the
    debug line says that this was suppressed; so a debug line alone speaks of a connection that was idle.
    """
    if facility == "REQTMOUT":
        return True
    if facility != "FAIL":
        return False
    state = _LOST_IN_STATE.search(text)
    if state is not None and state[1] in _NEVER_UP:
        return False
    return not (is_debug and _CLOSED_BY_BROKER in text and _SUPPRESSED not in text)


def tells_of_connection(facility: str, text: str) -> bool:
    """Whether a log line of librdkafka says that a connection is up."""
    return facility == "STATE" and text.endswith("-> UP")


def classify(error: KafkaError) -> Verdict:
    """The one table of errors, first match wins."""
    code = error.code()
    if code in _FENCED:
        return Verdict.FENCED
    if code in _DENIED:
        return Verdict.DENIED
    if code in _MISCONFIGURED:
        return Verdict.MISCONFIGURED
    if error.fatal():
        return Verdict.REBUILD
    if code in _REFUSALS:
        return Verdict.REFUSED
    if code in _OUT_OF_ORDER and error.txn_requires_abort():
        return Verdict.AGAIN
    if error.retriable() and not error.txn_requires_abort():
        return Verdict.RETRY
    return Verdict.REBUILD


def is_about_record(error: KafkaError) -> bool:
    """Whether the broker speaks about a record, or the batch it was in; ``_STATE`` only says that it is spoilt."""
    return classify(error) is Verdict.REFUSED and error.code() != KafkaError._STATE


def is_innocent(error: KafkaError) -> bool:
    """Whether another record of the batch was refused: this broker tells which (KIP-467)."""
    return error.code() == KafkaError._INVALID_DIFFERENT_RECORD


def is_of_this_record(error: KafkaError) -> bool:
    """Whether a broker that tells which record it refused means this very one."""
    return error.code() in _OF_ONE_RECORD


def is_unreadable(error: KafkaError) -> bool:
    """Whether a consumer says that it cannot read a batch, whatever the brokers do."""
    return error.code() in _UNREADABLE


def is_removed(error: KafkaError) -> bool:
    """Return whether a consumer says that the log no longer holds an offset."""
    return error.code() in _REMOVED


def is_too_large(error: KafkaError) -> bool:
    """Whether the broker refused for size: a record's, or that of the batch it was in."""
    return error.code() in _TOO_LARGE


def is_leaderless(error: KafkaError) -> bool:
    """Whether the client found no broker that leads a partition; it says the same where there is no such partition."""
    return error.code() == KafkaError._NOENT


def tells_of_stale_look(error: KafkaError) -> bool:
    """Whether the client asked nobody, or somebody who no longer leads: a new look at the cluster may mend that."""
    return error.code() in _STALE_LOOK


def is_unanswered(error: KafkaError) -> bool:
    """Return whether no broker has said anything, so that brokers may be away."""
    return error.code() in _UNANSWERED


def reason_of(error: KafkaError) -> Reason:
    """The rejection code for a record that the broker refused with this error."""
    code = error.code()
    if code in _TOO_LARGE:
        return Reason.RECORD_TOO_LARGE
    if code in _UNKNOWN_TARGET:
        return Reason.TARGET_UNKNOWN
    return Reason.TARGET_DENIED


def is_partition_end(error: KafkaError) -> bool:
    """Return whether a consumer says that a partition ends here."""
    return error.code() == KafkaError._PARTITION_EOF


def require_end(error: KafkaError) -> None:
    """Raise a ClusterError unless a consumer says that a partition ends here."""
    if not is_partition_end(error):
        raise cluster_error(error)


def error_of(exception: KafkaException) -> KafkaError:
    """The KafkaError inside an exception of confluent-kafka."""
    error = exception.args[0]
    assert isinstance(error, KafkaError), f"not a Kafka error: {exception!r}"
    return error


def text_of(error: KafkaError) -> str:
    """What an error says, or its name where it says nothing."""
    return error.str() or error.name()


def cluster_error(error: KafkaError, remedy: str = "") -> ClusterError:
    """Make a ClusterError of an error of the client."""
    kind = ClusterTrouble.OTHER
    if is_unreadable(error):
        kind = ClusterTrouble.UNREADABLE
    elif is_unanswered(error):
        kind = ClusterTrouble.UNANSWERED
    return ClusterError(kind, text_of(error), code=error.name(), verdict=classify(error).name, remedy=remedy)


@contextmanager
def cluster_errors() -> Iterator[None]:
    """Raise a KafkaException of the block as a ClusterError."""
    try:
        yield
    except KafkaException as exception:
        raise cluster_error(error_of(exception)) from exception


def with_cluster_errors(each: Generator[T, None, None]) -> Generator[T, None, None]:
    """Yield the same, and raise a KafkaException on the way as a ClusterError."""
    with closing(each), cluster_errors():
        yield from each
