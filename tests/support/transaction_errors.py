"""The errors by which librdkafka ends a transaction, one for each outcome that a router tells apart."""

from typing import Final

from confluent_kafka import KafkaError

REFUSED: Final = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE, "too large", txn_requires_abort=True)
AGAIN: Final = KafkaError(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, "again", txn_requires_abort=True)
NOT_YET: Final = KafkaError(KafkaError._TIMED_OUT, "the last transaction has not ended", retriable=True)
"""The error of a fence that may go on."""
FENCED: Final = KafkaError(KafkaError._FENCED, "fenced", fatal=True)
