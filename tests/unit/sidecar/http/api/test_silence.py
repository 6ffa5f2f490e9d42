"""Answers of the API while brokers do not answer: at once, with the time since when; nothing is begun."""

import time
from collections.abc import Callable
from pathlib import Path
from threading import Timer
from typing import Any, Final

import pytest
from confluent_kafka import KafkaError, KafkaException

from sidecar.http.api.application import PREFIX
from tests.support.admin_api import OPERATE, PRODUCE, READ, Api, HangingCall

SINCE_MS: Final = 1_790_000_000_000
SINCE: Final = "the brokers do not answer, since 2026-09-21 14:13:20Z: this router releases nothing until they do"


@pytest.fixture
def api(tmp_path: Path) -> Api:
    made = Api(tmp_path)
    made.pulse.since_ms = SINCE_MS
    return made


QUESTIONS = [
    "/topics",
    "/topics/d",
    "/topics/d/pending",
    "/topics/d/attempts",
    "/topics/d/schedules",
    "/topics/d/partitions/0/records/1",
    "/topics/d/rejected",
    "/topics/d/rejected/codes",
    "/topics/d/policy",
    "/policies",
    "/policies/changes",
    "/policies/default",
    "/policies/topics/d",
]
CHANGES: list[tuple[str, str, Any]] = [
    ("POST", "/topics/d/pause", {}),
    ("POST", "/topics/d/drain", {"confirm": "d"}),
    ("POST", "/targets/out/pause", {}),
    ("PUT", "/policies/topics/d", {"max_delay": "30m"}),
    ("PATCH", "/policies/default", {"max_delay": "30m"}),
    ("DELETE", "/policies/topics/d", None),
    ("DELETE", "/topics/d/schedules/a", None),
    ("PATCH", "/topics/d/schedules/a", {"due_ms": 1_900_000_000_000}),
    ("POST", "/topics/d/schedules/a?if_due_ms=9", {"key": "k"}),
    ("POST", "/topics/d/rejected/redrive", {}),
]


def test_a_question_is_refused_at_once_with_since_when(api: Api) -> None:
    for path in QUESTIONS:
        answer = api.client(READ).get(PREFIX + path)
        assert (answer.status_code, answer.json()["detail"]) == (503, SINCE), path
    assert api.operations.known.asked == 0, "nobody is asked who does not answer"


@pytest.mark.parametrize(("method", "path", "body"), CHANGES)
def test_a_change_is_not_begun(api: Api, method: str, path: str, body: Any) -> None:
    answer = api.client(OPERATE).request(method, PREFIX + path, json=body)
    assert (answer.status_code, answer.json()["detail"]) == (503, f"{SINCE}, and nothing was begun")
    assert (api.operations.held.policies, api.operations.controls, api.operations.redrives) == ({}, [], [])


def test_a_record_is_not_written(api: Api) -> None:
    answer = api.client(PRODUCE).post(f"{PREFIX}/topics/d/records", json={})
    assert (answer.status_code, answer.json()["detail"]) == (503, f"{SINCE}, and nothing was begun")
    assert api.operations.written == []


def test_whether_they_answer_can_be_asked_at_any_time(api: Api) -> None:
    silent = {"answering": False, "silent_since_ms": SINCE_MS, "detail": SINCE}
    assert api.client(READ).get(f"{PREFIX}/brokers").json() == silent
    api.pulse.since_ms = None
    answering = {"answering": True, "silent_since_ms": None, "detail": ""}
    assert api.client(READ).get(f"{PREFIX}/brokers").json() == answering
    assert api.client(READ).get(f"{PREFIX}/topics").status_code == 200


def test_who_asks_is_told_by_the_router_alone(api: Api) -> None:
    assert api.client(READ).get(f"{PREFIX}/caller").status_code == 200


def test_a_question_that_waits_ends_as_soon_as_they_are_silent(tmp_path: Path) -> None:
    api = Api(tmp_path)
    api.operations.before = hanging = HangingCall()
    later = Timer(0.3, _silence(api))
    later.start()
    try:
        began_s = time.monotonic()
        answer = api.client(READ).get(f"{PREFIX}/topics")
        assert (answer.status_code, answer.json()["detail"]) == (503, SINCE)
        assert time.monotonic() - began_s < 10, "the call itself waits for a minute"
    finally:
        hanging.released.set()
        later.join()


def _silence(api: Api) -> Callable[[], None]:
    def begin() -> None:
        api.pulse.since_ms = SINCE_MS

    return begin


@pytest.mark.parametrize(
    ("code", "told"), [(KafkaError._TIMED_OUT, "_TIMED_OUT"), (KafkaError._TRANSPORT, "_TRANSPORT")]
)
def test_one_request_without_an_answer_is_not_yet_a_silence(tmp_path: Path, code: int, told: str) -> None:
    api = Api(tmp_path)
    api.operations.fail(KafkaException(KafkaError(code)))
    answer = api.client(READ).get(f"{PREFIX}/policies")
    assert (answer.status_code, answer.json()["detail"]) == (503, f"the brokers did not answer in time ({told})")
