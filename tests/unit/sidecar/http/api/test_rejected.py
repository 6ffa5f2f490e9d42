"""Rejected records by the admin API: listed without their contents, counted by code, and driven again."""

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from structlog.testing import capture_logs

from index.errors import DelayRouterError
from sidecar.http.api.application import PREFIX
from sidecar.operations.rejected.log import OutOfTimeError
from sidecar.operations.rejected.redriving import AnotherRunError, Redrive
from sidecar.operations.rejected.selection import HeaderChanges, RejectedSelection
from tests.support.admin_api import OPERATE, READ, Api

LIST = "/topics/d/rejected"
CODES = "/topics/d/rejected/codes"
REDRIVE = "/topics/d/rejected/redrive"


@pytest.fixture
def api(tmp_path: Path) -> Api:
    """Make five rejected records of d, and one of e in the same topic."""
    made = Api(tmp_path)
    for number in range(4):
        made.operations.reject("d", "TARGET_UNKNOWN" if number % 2 else "EXPIRED", "why", b"job-%d" % number)
    made.operations.reject("e", "EXPIRED")
    made.operations.reject("d", "UNREADABLE", deliver_id=b"\xff")
    return made


def get(api: Api, path: str, code: int = 200) -> Any:
    answer = api.client(READ).get(PREFIX + path)
    assert answer.status_code == code, answer.text
    assert "canary" not in answer.text
    return answer.json()


def post(api: Api, body: Any, code: int = 200, token: str = OPERATE) -> Any:
    answer = api.client(token).post(PREFIX + REDRIVE, json=body)
    assert answer.status_code == code, answer.text
    return answer.json()


def offsets(page: Any) -> list[int]:
    return [each["offset"] for each in page["records"]]


def test_records_are_told_with_code_and_place_and_nothing_of_what_they_hold(api: Api) -> None:
    api.operations.redriven.add(0)
    page = get(api, LIST)
    assert page["records"][0] == {
        "partition": 0,
        "offset": 0,
        "rejected_ms": 1_000,
        "source": "d/1/40",
        "code": "EXPIRED",
        "message": "why",
        "id": "job-0",
        "redriven_before": 0,
        "is_redriven": True,
        "obstacle": "",
    }
    assert (offsets(page), page["next_from"]) == ([0, 1, 2, 3, 5], None)
    assert page["records"][-1]["id"] == "\ufffd"


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("code=EXPIRED", [0, 2]),
        ("code=EXPIRED&code=UNREADABLE", [0, 2, 5]),
        ("id=job-1&id=job-2", [1, 2]),
        ("since_ms=1001&until_ms=1003", [1, 2]),
        ("from=0/3", [3, 5]),
        ("from=1/0", []),
    ],
)
def test_what_is_asked_for_is_what_is_listed(api: Api, query: str, wanted: list[int]) -> None:
    assert offsets(get(api, f"{LIST}?{query}")) == wanted


def test_pages_follow_each_other(api: Api) -> None:
    first = get(api, f"{LIST}?limit=2")
    assert (offsets(first), first["next_from"]) == ([0, 1], "0/2")
    rest = get(api, f"{LIST}?limit=100&from={first['next_from']}")
    assert (offsets(rest), rest["next_from"]) == ([2, 3, 5], None)


@pytest.mark.parametrize(
    "query", ["code=NOPE", "limit=0", "limit=501", "from=1", "from=a/b", "since_ms=-1", "since_ms=1_0", "id="]
)
def test_a_question_that_cannot_be(api: Api, query: str) -> None:
    get(api, f"{LIST}?{query}", 422)


def test_counts_by_code(api: Api) -> None:
    api.operations.redriven.add(1)
    found = get(api, CODES)
    assert {each["code"]: (each["records"], each["redriven"]) for each in found["codes"]} == {
        "EXPIRED": (2, 0),
        "TARGET_UNKNOWN": (2, 1),
        "UNREADABLE": (1, 0),
    }
    api.operations.fail(OutOfTimeError("too long"))
    assert get(api, CODES, 504)["detail"] == "too long"


def test_counts_of_all_topics_at_once(api: Api) -> None:
    found = {each["topic"]: each for each in get(api, "/rejected")["topics"]}
    assert found == {"d": get(api, CODES), "e": get(api, "/topics/e/rejected/codes")}


def test_an_order_is_carried_out_within_bounds(api: Api) -> None:
    assert post(api, {"codes": ["EXPIRED"], "dry_run": True})["driven"] == 0
    done = post(
        api,
        {
            "codes": ["EXPIRED"],
            "set_headers": [{"name": "deliver-to", "value": "ü"}],
            "drop_headers": ["x"],
            "most": 1,
            "max_redriven": 7,
        },
    )
    assert done == {
        "selected": 2,
        "already_redriven": 1,
        "over_limit": 0,
        "not_whole": 0,
        "to_drive": 1,
        "driven": 1,
        "dry_run": False,
    }
    assert api.operations.redriven == {0}
    changes = HeaderChanges(("x",), (("deliver-to", "ü".encode()),))
    assert api.operations.redrives[-1] == Redrive(
        RejectedSelection("d", frozenset({"EXPIRED"})), changes, 7, 1, within_s=12.0
    )
    assert post(api, {})["selected"] == 5
    assert (api.operations.redrives[-1].most, api.operations.redrives[-1].within_s) == (1_000, 12.0)


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({"codes": ["NOPE"]}, "codes"),
        ({"most": 5_001}, "most"),
        ({"most": 0}, "most"),
        ({"code": "EXPIRED"}, "code"),
        ({"set_headers": [{"name": "", "value": "x"}]}, "name"),
        ({"set_headers": [{"name": "Delay-Source", "value": "x"}]}, "the router writes it itself"),
        ({"drop_headers": ["delay-redriven"]}, "the router writes it itself"),
    ],
)
def test_an_order_that_cannot_be(api: Api, body: Any, told: str) -> None:
    assert told in post(api, body, 422)["detail"]
    assert api.operations.redrives == []


def test_who_may_only_read_drives_nothing(api: Api) -> None:
    post(api, {}, 403, READ)
    assert api.client(OPERATE).post(PREFIX + REDRIVE, data={"dry_run": "false"}).status_code == 415
    assert api.operations.redrives == []


@pytest.mark.parametrize("path", ["/topics/other/rejected", "/topics/other/rejected/codes"])
def test_a_topic_that_is_not_ours(api: Api, path: str) -> None:
    get(api, path, 404)
    assert api.client(OPERATE).post(f"{PREFIX}/topics/other/rejected/redrive", json={}).status_code == 404


def _of_kafka() -> DelayRouterError:
    error = DelayRouterError("Kafka: broker.example:9092 said no")
    error.__cause__ = KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))
    return error


@pytest.mark.parametrize(
    ("fails", "code", "told"),
    [
        (AnotherRunError("another redrive of x has begun"), 409, "another redrive of x has begun"),
        (OutOfTimeError("reading it takes too long"), 504, "reading it takes too long"),
        (_of_kafka(), 503, "the cluster did not do it (TOPIC_AUTHORIZATION_FAILED)"),
        (DelayRouterError("broker.example:9092"), 503, "the router cannot do that now"),
    ],
)
def test_what_fails_is_told_without_names_of_brokers(api: Api, fails: Exception, code: int, told: str) -> None:
    api.operations.fail(fails)
    with capture_logs():
        detail = post(api, {}, code)["detail"]
    assert told in detail
    assert "broker.example" not in detail
