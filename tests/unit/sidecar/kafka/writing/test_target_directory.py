"""One answer that a target does not exist, against two, from an admin client with prepared answers."""

from collections.abc import Sequence
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from index.protocol.schedule import Reason
from sidecar.engine.ports import KNOWN_FOR_S, NO_DEMANDS, REFUSED_FOR_S
from sidecar.kafka.writing.target_directory import CONFIRM_AFTER_S, CONFIRM_NEW_EVERY_S, TargetDirectory


class Brokers:
    """Brokers with prepared ``answers``: the topics that exist at each request; the last answer stays."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self.answers = list(answers)
        self.now_s = 0.0
        self.slept: list[float] = []
        client: Any = self
        self.directory = TargetDirectory(client, lambda: self.now_s, self._sleep)
        self.hides_settings: KafkaException | None = None

    def describe_topics(self, topics: Any, **_: Any) -> dict[str, "Future[Any]"]:
        known = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return {name: _answered(name in known) for name in topics.topic_names}

    def describe_configs(self, resources: Sequence[Any], **_: Any) -> dict[Any, "Future[Any]"]:
        found: dict[Any, Future[Any]] = {}
        for resource in resources:
            found[resource] = Future()
            if self.hides_settings is None:
                found[resource].set_result({})
            else:
                found[resource].set_exception(self.hides_settings)
        return found

    def list_topics(self, **_: Any) -> None:
        """Answer the request that comes before an unanswered one is sent again."""

    def missing(self, *names: str) -> set[str]:
        """Return the names that would be rejected now."""
        found = self.directory.resolve(names)
        return {name for name, each in found.items() if each.refusal and each.refusal.reason is Reason.TARGET_UNKNOWN}

    def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now_s += seconds


def _answered(is_known: bool) -> "Future[Any]":
    future: Future[Any] = Future()
    if is_known:
        future.set_result(SimpleNamespace(authorized_operations=None, partitions=[0]))
    else:
        future.set_exception(KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)))
    return future


def test_one_wrong_answer_about_a_topic_that_was_there_rejects_nothing() -> None:
    brokers = Brokers(["a", "b"], ["b"], ["a", "b"])
    assert brokers.missing("a", "b") == set()
    brokers.now_s += KNOWN_FOR_S + 1
    assert brokers.missing("a", "b") == set()
    assert brokers.slept == [CONFIRM_AFTER_S]


def test_settings_that_the_router_may_not_read_leave_no_transaction_in_memory() -> None:
    """The look-up happens in a transaction: a kept frame would keep all its records."""
    brokers = Brokers(["a", "b"])
    brokers.hides_settings = KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))
    assert brokers.directory.resolve(["a"])["a"].demands == NO_DEMANDS
    assert brokers.hides_settings.__traceback__ is None
    brokers.hides_settings = KafkaException(KafkaError(KafkaError._TIMED_OUT))
    assert brokers.directory.resolve(["b"])["b"].demands == NO_DEMANDS


def test_one_wrong_answer_about_a_new_topic_rejects_nothing() -> None:
    brokers = Brokers([], ["new"])
    assert brokers.missing("new") == set()


def test_a_topic_that_is_gone_is_confirmed_once() -> None:
    brokers = Brokers(["a"], [])
    assert brokers.missing("a") == set()
    brokers.now_s += KNOWN_FOR_S + 1
    # A topic that never existed is asked for twice now, and not again for a while.
    assert brokers.missing("typo") == {"typo"}
    for _ in range(5):
        assert brokers.missing("a") == {"a"}
        brokers.now_s += REFUSED_FOR_S + 0.1
    assert brokers.now_s < CONFIRM_NEW_EVERY_S
    assert brokers.slept == [CONFIRM_AFTER_S] * 2


def test_names_that_never_were_hold_up_others_now_and_then_only() -> None:
    brokers = Brokers([])
    for number in range(1_000):
        assert brokers.missing(f"typo-{number}") == {f"typo-{number}"}
        brokers.now_s += 0.1
    assert len(brokers.slept) <= 1 + 1_000 * (0.1 + CONFIRM_AFTER_S) / CONFIRM_NEW_EVERY_S
    assert sum(brokers.slept) < 0.05 * brokers.now_s
