"""Commands that write the state of a partition, while a running router takes the partition back."""

from collections.abc import Callable

import pytest
from confluent_kafka import KafkaError, KafkaException

from sidecar.cluster.topics.start_over import ATTEMPTS, done_unless_fenced


def failing(times: int, code: int) -> Callable[[], None]:
    """Return a write that fails as often as this."""
    left = [KafkaException(KafkaError(code))] * times

    def write() -> None:
        if left:
            raise left.pop()

    return write


@pytest.mark.parametrize(("times", "is_done"), [(0, True), (ATTEMPTS - 1, True), (ATTEMPTS, False)])
def test_a_fenced_write_is_tried_again(times: int, *, is_done: bool) -> None:
    assert done_unless_fenced(failing(times, KafkaError._FENCED)) is is_done


def test_another_error_is_not_tried_again() -> None:
    with pytest.raises(KafkaException):
        done_unless_fenced(failing(1, KafkaError.TOPIC_AUTHORIZATION_FAILED))
