"""The meaning of each error of librdkafka for the partition that met it; all callers use this one table.

librdkafka has no KIP-890 client: a commit or produce whose outcome is unknown may still reach the broker and hit a
*later* transaction of the same producer (Jepsen on Bufstream, 2024; librdkafka #5423). So the router uses a producer
again only after an error with a certain outcome: REFUSED, RETRY and AGAIN. After any other error it discards the
producer, the index and the open batch together and takes the partition over again from its state topic.
"""

import re
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from enum import Enum
from typing import TypeVar

from confluent_kafka import KafkaError, KafkaException

from index.errors import ClusterError, ClusterTrouble
from index.protocol.schedule import Reason

T = TypeVar("T")


class Verdict(Enum):
    """The action to take after an error.

    After FENCED and DENIED an owned partition is taken over again, as after REBUILD. They are separate because other
    callers distinguish them: ``start-over`` tries again after FENCED, and a group member reports DENIED.
    """

    REFUSED = "abort, find the records the broker refuses, divert them, go on with the same producer"
    RETRY = "make the same call again"
    AGAIN = "abort, which gives the producer a new epoch, and write the same transaction again"
    FENCED = "another producer has taken the place of this one: ask the group for the owner of the partition"
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
        # librdkafka ends a transaction so if one of its topics never appeared in the metadata.
        KafkaError._INCONSISTENT,
    }
)
# Error of produce after an earlier record has spoilt the transaction: the cause must be found.
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
# Error that follows a refused batch, whose sequence numbers are missing. The broker has answered, so the outcome is
# known.
_OUT_OF_ORDER = frozenset({KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER})
# Errors of a consumer about a batch: it cannot be decompressed, it is damaged, or its format is unknown.
_UNREADABLE = frozenset({KafkaError._BAD_COMPRESSION, KafkaError._BAD_MSG, KafkaError._NOT_IMPLEMENTED})
# Errors of a request when the client does not know the brokers, has lost one on the way, takes another broker for the
# leader, or asks a leader that is too new to know the end of the log (KIP-207).
_STALE_LOOK = frozenset(
    {
        KafkaError._NOENT,
        KafkaError._TRANSPORT,
        KafkaError._DESTROY_BROKER,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.OFFSET_NOT_AVAILABLE,
    }
)
# Errors of the client when no broker has answered in time, or none could be reached.
_UNANSWERED = frozenset(
    {
        KafkaError._TIMED_OUT,
        KafkaError._MSG_TIMED_OUT,
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._RESOLVE,
    }
)
# Errors of a consumer about an offset that the log no longer holds, with auto.offset.reset "error".
_REMOVED = frozenset({KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE})
_REFUSALS = _TOO_LARGE | _UNKNOWN_TARGET | _REFUSED_RECORD | _SPOILT


# "... (after 334ms in state UP) (_TRANSPORT)"; missing if the text was too long.
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
    """Say whether a log line of librdkafka reports the loss of a connection on which requests may have been under way.

    Every loss has a debug line. The loss of a connection in use has a second line, of another level, unless the debug
    line says that the second one was suppressed. So a debug line alone reports the loss of an idle connection.
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
    """Say whether a log line of librdkafka reports that a connection is up."""
    return facility == "STATE" and text.endswith("-> UP")


def classify(error: KafkaError) -> Verdict:
    """Return the verdict about an error; the first match wins."""
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
    """Say whether the error concerns a record or its batch; ``_STATE`` only says that the transaction is spoilt."""
    return classify(error) is Verdict.REFUSED and error.code() != KafkaError._STATE


def is_innocent(error: KafkaError) -> bool:
    """Say whether the broker refused another record of the batch: this broker tells which one (KIP-467)."""
    return error.code() == KafkaError._INVALID_DIFFERENT_RECORD


def is_of_this_record(error: KafkaError) -> bool:
    """Say whether a broker that tells which record it refused means this record."""
    return error.code() in _OF_ONE_RECORD


def is_unreadable(error: KafkaError) -> bool:
    """Say whether a consumer cannot read a batch, independently of the state of the brokers."""
    return error.code() in _UNREADABLE


def is_removed(error: KafkaError) -> bool:
    """Say whether a consumer reports that the log no longer holds an offset."""
    return error.code() in _REMOVED


def is_too_large(error: KafkaError) -> bool:
    """Say whether the broker refused a record because of its size, or the size of its batch."""
    return error.code() in _TOO_LARGE


def is_leaderless(error: KafkaError) -> bool:
    """Say whether the client found no leader of a partition; the code is the same if the partition does not exist."""
    return error.code() == KafkaError._NOENT


def tells_of_stale_look(error: KafkaError) -> bool:
    """Say whether the client asked no broker, no leader, or a leader that is too new; asking again may mend that."""
    return error.code() in _STALE_LOOK


def is_unanswered(error: KafkaError) -> bool:
    """Say whether no broker has answered, so that brokers may be away."""
    return error.code() in _UNANSWERED


def reason_of(error: KafkaError) -> Reason:
    """Return the rejection code for a record that the broker refused with this error."""
    code = error.code()
    if code in _TOO_LARGE:
        return Reason.RECORD_TOO_LARGE
    if code in _UNKNOWN_TARGET:
        return Reason.TARGET_UNKNOWN
    return Reason.TARGET_DENIED


def is_partition_end(error: KafkaError) -> bool:
    """Say whether a consumer reports the end of a partition."""
    return error.code() == KafkaError._PARTITION_EOF


def require_end(error: KafkaError) -> None:
    """Raise a ClusterError unless the error is a consumer's report of the end of a partition."""
    if not is_partition_end(error):
        raise cluster_error(error)


def error_of(exception: KafkaException) -> KafkaError:
    """Return the KafkaError inside an exception of confluent-kafka."""
    error = exception.args[0]
    assert isinstance(error, KafkaError), f"not a Kafka error: {exception!r}"
    return error


def text_of(error: KafkaError) -> str:
    """Return the text of an error, or its name where the text is empty."""
    return error.str() or error.name()


def cluster_error(error: KafkaError, remedy: str = "") -> ClusterError:
    """Turn an error of the client into a ClusterError."""
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
    """Yield the items of the generator, and raise a KafkaException of it as a ClusterError."""
    with closing(each), cluster_errors():
        yield from each
