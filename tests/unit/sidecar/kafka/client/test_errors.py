"""The one table of errors: only a broker's clean verdict lets a producer go on."""

from collections.abc import Generator
from typing import TypedDict

import pytest
from confluent_kafka import KafkaError, KafkaException

from index.errors import ClusterError, ClusterTrouble
from index.protocol.schedule import Reason
from sidecar.kafka.client.errors import Verdict, classify, cluster_errors, error_of, reason_of, with_cluster_errors


class Flags(TypedDict, total=False):
    fatal: bool
    retriable: bool
    txn_requires_abort: bool


NONE: Flags = {}
RETRIABLE: Flags = {"retriable": True}
ABORTABLE: Flags = {"txn_requires_abort": True}
FATAL: Flags = {"fatal": True}

REFUSALS = {
    KafkaError.MSG_SIZE_TOO_LARGE: Reason.RECORD_TOO_LARGE,
    KafkaError.RECORD_LIST_TOO_LARGE: Reason.RECORD_TOO_LARGE,
    KafkaError.INVALID_MSG_SIZE: Reason.RECORD_TOO_LARGE,
    KafkaError.UNKNOWN_TOPIC_OR_PART: Reason.TARGET_UNKNOWN,
    KafkaError._UNKNOWN_TOPIC: Reason.TARGET_UNKNOWN,
    KafkaError._UNKNOWN_PARTITION: Reason.TARGET_UNKNOWN,
    KafkaError._INCONSISTENT: Reason.TARGET_UNKNOWN,
    KafkaError.TOPIC_AUTHORIZATION_FAILED: Reason.TARGET_DENIED,
    KafkaError.TOPIC_EXCEPTION: Reason.TARGET_DENIED,
    KafkaError.INVALID_TIMESTAMP: Reason.TARGET_DENIED,
    KafkaError.INVALID_RECORD: Reason.TARGET_DENIED,
    KafkaError.INVALID_MSG: Reason.TARGET_DENIED,
    KafkaError.POLICY_VIOLATION: Reason.TARGET_DENIED,
    KafkaError._STATE: Reason.TARGET_DENIED,
}
FENCED = [KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH]
DENIED = [
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError._AUTHENTICATION,
]
ALL_CODES = sorted({value for name, value in vars(KafkaError).items() if name.isupper() and isinstance(value, int)})


@pytest.mark.parametrize("flags", [NONE, FATAL, RETRIABLE, ABORTABLE])
@pytest.mark.parametrize("code", FENCED)
def test_a_fenced_owner_asks_the_group_however_it_is_told(code: int, flags: Flags) -> None:
    assert classify(KafkaError(code, **flags)) is Verdict.FENCED


@pytest.mark.parametrize("flags", [NONE, FATAL, ABORTABLE])
def test_a_setting_that_brokers_never_take_is_no_reason_to_wait(flags: Flags) -> None:
    assert classify(KafkaError(KafkaError.INVALID_TRANSACTION_TIMEOUT, **flags)) is Verdict.MISCONFIGURED


@pytest.mark.parametrize("flags", [NONE, FATAL, ABORTABLE])
@pytest.mark.parametrize("code", DENIED)
def test_what_is_not_authorised_is_reported(code: int, flags: Flags) -> None:
    assert classify(KafkaError(code, **flags)) is Verdict.DENIED


@pytest.mark.parametrize("flags", [NONE, ABORTABLE])
@pytest.mark.parametrize(("code", "reason"), REFUSALS.items())
def test_a_refused_record_and_its_code(code: int, reason: Reason, flags: Flags) -> None:
    assert classify(KafkaError(code, **flags)) is Verdict.REFUSED
    assert reason_of(KafkaError(code)) is reason


@pytest.mark.parametrize(
    ("code", "flags", "verdict"),
    [
        # A call that timed out is resumed by making it again; a record that timed out is not.
        (KafkaError._TIMED_OUT, RETRIABLE, Verdict.RETRY),
        (KafkaError._TIMED_OUT, NONE, Verdict.REBUILD),
        (KafkaError._TIMED_OUT, {"retriable": True, "txn_requires_abort": True}, Verdict.REBUILD),
        (KafkaError._MSG_TIMED_OUT, NONE, Verdict.REBUILD),
        (KafkaError._PURGE_QUEUE, NONE, Verdict.REBUILD),
        (KafkaError.UNKNOWN_PRODUCER_ID, ABORTABLE, Verdict.REBUILD),
        (KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, FATAL, Verdict.REBUILD),
        (KafkaError.INVALID_TXN_STATE, FATAL, Verdict.REBUILD),
        (KafkaError.CONCURRENT_TRANSACTIONS, RETRIABLE, Verdict.RETRY),
        (KafkaError._ALL_BROKERS_DOWN, NONE, Verdict.REBUILD),
    ],
)
def test_the_others(code: int, flags: Flags, verdict: Verdict) -> None:
    assert classify(KafkaError(code, **flags)) is verdict


@pytest.mark.parametrize("code", ALL_CODES)
def test_no_other_code_lets_a_producer_go_on(code: int) -> None:
    listed = code in REFUSALS or code in FENCED or code in DENIED or code == KafkaError.INVALID_TRANSACTION_TIMEOUT
    # Rebuilding is safe after any outcome, so every unknown error must lead to it.
    assert listed or classify(KafkaError(code)) is Verdict.REBUILD
    assert classify(KafkaError(code, fatal=True)) not in (Verdict.REFUSED, Verdict.RETRY)
    assert classify(KafkaError(code, retriable=True, txn_requires_abort=True)) is not Verdict.RETRY


def test_the_error_inside_an_exception() -> None:
    error = KafkaError(KafkaError._FENCED)
    assert error_of(KafkaException(error)) is error
    with pytest.raises(AssertionError, match="not a Kafka error"):
        error_of(KafkaException("text"))


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (KafkaError._TIMED_OUT, ClusterTrouble.UNANSWERED),
        (KafkaError._BAD_MSG, ClusterTrouble.UNREADABLE),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, ClusterTrouble.OTHER),
    ],
)
def test_an_error_of_the_client_becomes_one_of_ours(code: int, kind: ClusterTrouble) -> None:
    error = KafkaError(code, "what it says")
    with pytest.raises(ClusterError, match=r"^what it says$") as raised, cluster_errors():
        raise KafkaException(error)
    assert (raised.value.kind, raised.value.code) == (kind, error.name())
    assert raised.value.verdict == classify(error).name


def test_an_error_of_the_client_becomes_one_of_ours_where_records_are_read_one_by_one() -> None:
    closed: list[bool] = []

    def records() -> Generator[int, None, None]:
        try:
            yield 1
            raise KafkaException(KafkaError(KafkaError._BAD_MSG))
        finally:
            closed.append(True)

    read = with_cluster_errors(records())
    assert next(read) == 1
    with pytest.raises(ClusterError):
        next(read)
    left = with_cluster_errors(records())
    next(left)
    left.close()
    assert closed == [True, True]
