"""Records written by the admin API: judged before, written as they were sent, and answered with their place."""

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from index.protocol.control_headers import NAMES
from index.protocol.headers import RECURRING, RESERVED
from sidecar.config.model import Config
from sidecar.http.api.application import PREFIX
from sidecar.kafka.writing.record_writer import OutcomeUnknownError
from sidecar.policies.policy import topic_scope
from tests.support.admin_api import OPERATE, PRODUCE, READ, Api

SENT_MS = 1_800_000_000_000


@pytest.fixture
def api(tmp_path: Path) -> Api:
    return Api(tmp_path)


def post(api: Api, body: Any, code: int = 201, topic: str = "d", token: str = PRODUCE) -> Any:
    answer = api.client(token).post(f"{PREFIX}/topics/{topic}/records", json=body)
    assert answer.status_code == code, answer.text
    return answer.json()


def test_a_record_is_written_as_it_was_sent_and_its_place_is_told(api: Api) -> None:
    headers = [
        {"name": "deliver-after", "value": "5m"},
        {"name": "deliver-to", "value": "a"},
        {"name": "trace", "value": {"base64": "AAH/"}},
        {"name": "trace", "value": None},
    ]
    assert post(api, {"key": "k\u00e9", "value": {"base64": ""}, "headers": headers}) == {
        "topic": "d",
        "partition": 1,
        "offset": 0,
        "due_ms": SENT_MS + 300_000,
        "targets": ["a"],
    }
    assert api.operations.written == [
        (
            "d",
            "k\u00e9".encode(),
            b"",
            [("deliver-after", b"5m"), ("deliver-to", b"a"), ("trace", b"\x00\x01\xff"), ("trace", None)],
        )
    ]


def test_what_is_left_out_is_null_and_a_record_without_a_time_is_due_when_its_topic_says(api: Api) -> None:
    assert post(api, {})["due_ms"] == SENT_MS
    assert api.operations.written == [("d", None, None, [])]
    policy = {"delay": "10m", "default_target": "b.x"}
    assert api.client(OPERATE).patch(f"{PREFIX}/policies/topics/d", json=policy).is_success
    answer = post(api, {})
    assert (answer["due_ms"], answer["targets"]) == (SENT_MS + 600_000, ["b.x"])


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("deliver-after", "2h", "MAX_DELAY_EXCEEDED: Exceeds max allowed delivery delay of 3600000 milliseconds"),
        ("deliver-after", "soon", "INVALID_SCHEDULE: "),
        ("deliver-to", "elsewhere", "TARGET_NOT_ALLOWED: "),
        ("deliver-att", "1", "did you mean deliver-at?"),
    ],
)
def test_what_would_be_rejected_is_not_written_and_the_reason_is_told(
    api: Api, name: str, value: str, why: str
) -> None:
    detail = post(api, {"headers": [{"name": name, "value": value}]}, 422)["detail"]
    assert why in detail
    assert detail.endswith("nothing was written")
    assert api.operations.written == []


@pytest.mark.parametrize(
    "body",
    [
        {"value": 5},
        {"value": {"base64": "A"}},
        {"value": {"base64": "AAA=", "text": "x"}},
        {"headers": {"deliver-after": "5m"}},
        {"headers": [{"name": "", "value": "x"}]},
        {"headers": [{"name": "a\u0000b", "value": "x"}]},
        {"headers": [{"name": "x"}] * 101},
        {"partition": 0},
    ],
)
def test_what_cannot_be_a_record_is_refused(api: Api, body: Any) -> None:
    post(api, body, 422)
    assert api.operations.written == []


def test_a_topic_that_is_not_there_and_one_that_is_switched_off(api: Api) -> None:
    post(api, {}, 404, topic="out")
    api.operations.change_policy(topic_scope("d"), {"enabled": False})
    assert "DELAY_DISABLED" in post(api, {}, 422)["detail"]


@pytest.mark.parametrize("token", [READ, OPERATE])
def test_it_takes_a_role_of_its_own(api: Api, token: str) -> None:
    assert post(api, {}, 403, token=token)["detail"].endswith("it takes one of produce")
    assert api.operations.written == []


CONTROLS = ["deliver-cancel", "deliver-replace", "deliver-move", "deliver-if-due", "deliver-cancel-where"]
HOUR = {"name": "deliver-after", "value": "1h"}
REPLACES = {"name": "deliver-replace", "value": "true"}


@pytest.mark.parametrize("token", [READ, PRODUCE])
@pytest.mark.parametrize("name", [*CONTROLS, "Deliver-Cancel", "DELIVER-MOVE", "dElIvEr-rEpLaCe"])
def test_no_token_but_one_that_operates_writes_a_control(api: Api, name: str, token: str) -> None:
    for value in ("pay-1", "true", "", None, {"base64": "AAEC"}):
        control = {"name": name, "value": value}
        for headers in ([control], [control, control], [HOUR, {"name": "deliver-id", "value": "pay-1"}, control]):
            detail = post(api, {"key": "k", "headers": headers}, 403, token=token)["detail"]
            assert detail.endswith("takes one of operate" if token == PRODUCE else "takes one of produce")
            assert (name in detail) == (token == PRODUCE)
    assert api.operations.written == []


@pytest.mark.parametrize(
    "headers",
    [
        [{"name": "deliver-cancel", "value": "pay-1"}],
        [{"name": "Deliver-Move", "value": "pay-1"}, HOUR],
        [
            REPLACES,
            {"name": "deliver-id", "value": "pay-1"},
            HOUR,
            {"name": "Deliver-If-Due", "value": "1900000000000"},
        ],
        [{"name": "deliver-cancel", "value": "pay-1"}, {"name": "deliver-if-due", "value": "1900000000000"}],
    ],
)
def test_a_token_that_operates_writes_controls(api: Api, headers: list[dict[str, str]]) -> None:
    post(api, {"key": "k", "headers": headers}, token=OPERATE)
    written = [(each["name"], each["value"].encode()) for each in headers]
    assert api.operations.written == [("d", b"k", None, written)]


@pytest.mark.parametrize("name", ["deliver-replace", "DELIVER-Replace"])
def test_a_replacement_without_a_condition_would_be_a_new_schedule(api: Api, name: str) -> None:
    headers = [{"name": name, "value": "true"}, {"name": "deliver-id", "value": "pay-1"}, HOUR]
    detail = post(api, {"key": "k", "headers": headers}, 403, token=OPERATE)["detail"]
    assert detail.startswith(
        "this token may only operate, and a replacement without deliver-if-due may be a new schedule"
    )
    assert detail.endswith(
        "give deliver-if-due, the time for which the pending schedule was requested;"
        " a new schedule takes one of produce"
    )
    # A condition of null is no condition.
    nothing = [*headers, {"name": "deliver-if-due", "value": None}]
    assert "deliver-if-due" in post(api, {"headers": nothing}, 422, token=OPERATE)["detail"]
    assert api.operations.written == []


def test_a_control_that_is_rejected_is_not_written_by_who_operates(api: Api) -> None:
    twice = [{"name": "deliver-cancel", "value": "pay-1"}] * 2
    assert "AMBIGUOUS_HEADER" in post(api, {"headers": twice}, 422, token=OPERATE)["detail"]
    assert api.operations.written == []


def test_each_header_by_which_a_router_takes_a_record_for_a_control_is_known_here() -> None:
    assert RESERVED - RECURRING == NAMES == {*CONTROLS}


@pytest.mark.parametrize("name", ["deliver-cancel", "deliver-replace", "deliver-move", "deliver-if-due"])
def test_no_alias_stands_for_a_control(name: str) -> None:
    for alias in ({"name": "x-alias", "role": name.removeprefix("deliver-")}, {"name": name, "role": "id"}):
        topic = {"name": "d", "default_target": "out", "aliases": [alias]}
        with pytest.raises(ValueError, match="alias"):
            Config.model_validate({"kafka": {"bootstrap.servers": "b:1"}, "delay_topics": [topic]})


def test_no_form_and_no_page_under_another_name_can_write(api: Api) -> None:
    """A browser led astray can send only such requests; it would not have the token either."""
    client, path = api.client(PRODUCE), f"{PREFIX}/topics/d/records"
    for kind in ("application/x-www-form-urlencoded", "text/plain", "multipart/form-data; boundary=x", ""):
        assert client.post(path, content="{}", headers={"content-type": kind}).status_code == 415
    assert client.post(path, json={}, headers={"host": "evil.example"}).status_code == 421
    assert api.operations.written == []


def test_what_the_cluster_does_not_take_is_told_and_what_nobody_knows_too(api: Api) -> None:
    api.operations.fail(KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)))
    assert "TOPIC_AUTHORIZATION_FAILED" in post(api, {}, 503)["detail"]
    api.operations.fail(OutcomeUnknownError())
    assert "not known whether the record was written" in post(api, {}, 504)["detail"]
