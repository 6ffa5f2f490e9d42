"""The checks that a request must pass: size, Host, token, pace, role, type; and the log lines about it."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from starlette.types import Message, Scope
from structlog.contextvars import merge_contextvars
from structlog.testing import capture_logs

from index.errors import RefusedError
from sidecar.http import guard, pace
from sidecar.http.api import calls
from sidecar.http.api.application import PREFIX
from sidecar.http.guard import CALLER, DOCUMENT
from tests.support.admin_api import JSON, OPERATE, PRODUCE, READ, Api, HangingCall, bearer, concrete, operations

TOPICS = f"{PREFIX}/topics"
PAUSE = f"{PREFIX}/topics/d/pause"
WRITES_RECORDS = {"records"}


@pytest.fixture
def api(tmp_path: Path) -> Api:
    return Api(tmp_path)


def test_every_path_wants_a_token_and_the_document_says_so(api: Api) -> None:
    found = operations()
    assert len(found) >= 24
    for method, path, described in found:
        assert described["security"] == [{"token": []}]
        for headers in ({}, bearer("x" * 40), {"authorization": f"Basic {OPERATE}"}, {"authorization": OPERATE}):
            api.now_s += 1
            answer = api.client().request(method, concrete(path), headers=headers | JSON, content="{}")
            assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer"), (method, path)
    assert api.operations.held.policies == {}


def test_reading_is_for_two_roles_changing_for_one_and_writing_records_for_another(api: Api) -> None:
    for method, path, described in operations():
        may_read, produces = described["x-role"] == "read", described["x-role"] == "produce"
        assert may_read == (method == "GET")
        takes_payload = path.endswith("/value")
        assert produces == (method == "POST" and path.removeprefix(f"{TOPICS}/{{topic}}/") in WRITES_RECORDS)
        body = {"confirm": "d"} if path.endswith("drain") and "undrain" not in path else {}
        query = "?if_due_ms=9" if method == "POST" and path.endswith("{id}") else ""
        asked = api.client(READ).request(method, concrete(path) + query, json=None if may_read else body)
        assert (asked.status_code == 403) == (not may_read or takes_payload), (method, path, asked.text)
        asked = api.client(OPERATE).request(method, concrete(path) + query, json=None if may_read else body)
        assert (asked.status_code == 403) == (produces or takes_payload), (method, path, asked.text)
        assert asked.status_code != 401
        asked = api.client(PRODUCE).request(method, concrete(path) + query, json=None if may_read else body)
        assert (asked.status_code == 403) != (produces or path == CALLER), (method, path, asked.text)
    assert len(api.operations.written) == len(WRITES_RECORDS) + 1, "and the replacement, by who operates"


@pytest.mark.parametrize(
    "path",
    [
        "/topics/d/pause",
        "/topics/d/x/records",
        "/topics//records",
        "/topics/d/records/",
        "/topics/d%2Fx/records",
        "/topics/d/schedules/",
        "/topics/d/schedules/order-7",
        "/topics/d/schedules/a/records",
        "/topics/d/rejected/redrive",
    ],
)
def test_a_token_that_produces_may_nothing_else(api: Api, path: str) -> None:
    answer = api.client(PRODUCE).post(PREFIX + path, json={})
    assert answer.status_code == 403
    assert answer.json()["detail"] == "this token may only produce; it takes one of operate"


def test_what_has_no_path_is_not_told_to_strangers(api: Api) -> None:
    for path in ("/", "/docs", "/redoc", "/openapi.json", f"{PREFIX}/", f"{PREFIX}/nothing", "/metrics"):
        stranger, reader = api.client().get(path), api.client(READ).get(path)
        assert (stranger.status_code, reader.status_code) == (401, 404)
        assert all(DOCUMENT in answer.json()["detail"] for answer in (stranger, reader))
    assert api.client(READ).get(DOCUMENT).status_code == 200


def test_changes_must_be_json(api: Api) -> None:
    """A web page can send JSON only after a preflight request, never by a form."""
    for method, path, described in operations():
        if method in ("GET", "DELETE"):
            continue
        client = api.client(PRODUCE if described["x-role"] == "produce" else OPERATE)
        for kind in ("application/x-www-form-urlencoded", "multipart/form-data", "text/plain", ""):
            answer = client.request(method, concrete(path), content=b"{}", headers={"content-type": kind})
            assert answer.status_code == 415, (method, path, kind)
    assert api.operations.held.policies == {}
    is_json = {"content-type": "Application/JSON; charset=utf-8"}
    assert api.client(OPERATE).post(PAUSE, content=b"{}", headers=is_json).is_success


@pytest.mark.parametrize(("path", "named"), [("d/schedules/%FF", "path"), ("d/schedules?id=%C3", "query")])
def test_bytes_that_are_no_text_are_refused(api: Api, path: str, named: str) -> None:
    method = "GET" if named == "query" else "DELETE"
    answer = api.client(OPERATE).request(method, f"{PREFIX}/topics/{path}")
    assert answer.status_code == 400
    assert answer.json()["detail"].startswith(f"the {named} is not UTF-8; ")
    assert api.operations.controls == []


def test_get_and_head_change_nothing(api: Api) -> None:
    before = api.operations.held
    for method, path, _ in operations():
        if method == "GET":
            got, head = api.client(READ).get(concrete(path)), api.client(READ).head(concrete(path))
            assert (head.status_code, head.content) == (got.status_code, b"")
        else:
            assert api.client(OPERATE).get(concrete(path)).status_code in (200, 404, 405)
    assert api.operations.held is before


def test_no_other_site_may_read_or_ask(api: Api) -> None:
    origin = {"origin": "https://evil.example", "access-control-request-method": "POST"}
    for headers in (origin, origin | bearer(OPERATE)):
        answer = api.client().options(TOPICS, headers=headers)
        assert answer.status_code in (401, 405)
        assert not [name for name in answer.headers if name.startswith("access-control")]


@pytest.mark.parametrize(
    ("host", "code"),
    [
        ("localhost", 200),
        ("LOCALHOST:9", 200),
        ("127.0.0.1:8081", 200),
        ("[::1]:8081", 200),
        ("router.example", 200),
        ("evil.example", 421),
        ("localhost.evil.example", 421),
        ("localhost:8081:1", 421),
        ("127.0.0.1@evil.example", 421),
        ("", 421),
    ],
)
def test_hosts(tmp_path: Path, host: str, code: int) -> None:
    api = Api(tmp_path, allowed_hosts=["Router.example"])
    assert api.client(READ).get(TOPICS, headers={"host": host}).status_code == code


def test_the_address_it_listens_on_is_a_host(tmp_path: Path) -> None:
    api = Api(tmp_path, listen="192.0.2.1:81", allow_plaintext=True)
    assert api.client(READ).get(TOPICS, headers={"host": "192.0.2.1:81"}).status_code == 200


def test_sizes(api: Api) -> None:
    client = api.client(OPERATE)
    assert client.get(TOPICS, params={"x": "y" * 8_200}).status_code == 414
    assert client.get(TOPICS, headers={"x": "y" * 16_400}).status_code == 431
    fits = json.dumps({"confirm": "d"}) + " " * (65_536 - 16)
    assert client.post(f"{PREFIX}/topics/d/drain", content=fits, headers=JSON).status_code == 200
    assert client.post(f"{PREFIX}/topics/d/drain", content=fits + " ", headers=JSON).status_code == 413
    # A body in pieces, without an announced length.
    assert ask(api, "POST", PAUSE, {}, body=b" " * 65_537)[0] == 413


@pytest.mark.parametrize("length", ["-1", "9" * 30, "1e3", "\u0661"])
def test_a_length_that_is_none(api: Api, length: str) -> None:
    headers = {b"content-length": length.encode()}
    assert ask(api, "POST", PAUSE, headers)[0] == 413


def test_a_header_that_decides_comes_once(api: Api) -> None:
    twice = [(b"authorization", b"Bearer x"), (b"authorization", f"Bearer {OPERATE}".encode())]
    assert ask(api, "GET", TOPICS, twice)[0] == 400


def ask(api: Api, method: str, path: str, headers: Any, body: bytes = b"{}") -> tuple[int, bytes]:
    """Send a request that a client library would not send; return the status and the body."""
    given = list(headers.items()) if isinstance(headers, dict) else headers
    names = {name for name, _ in given}
    own = [(b"host", b"localhost"), (b"authorization", f"Bearer {OPERATE}".encode())]
    scope: Scope = {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [*given, *(each for each in own if each[0] not in names)],
    }
    sent: list[Message] = []
    pieces = [body[first : first + 1_000] for first in range(0, len(body), 1_000)]

    async def receive() -> Message:
        return {"type": "http.request", "body": pieces.pop(0), "more_body": bool(pieces)}

    async def send(message: Message) -> None:
        sent.append(message)

    asyncio.run(api.app(scope, receive, send))  # type: ignore[arg-type]
    return sent[0]["status"], b"".join(message.get("body", b"") for message in sent[1:])


def test_a_caller_that_goes_before_it_has_asked_gets_nothing(api: Api) -> None:
    scope: Scope = {
        "type": "http",
        "method": "POST",
        "path": PAUSE,
        "query_string": b"",
        "headers": [(b"host", b"localhost"), (b"authorization", f"Bearer {OPERATE}".encode())],
    }
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)

    asyncio.run(api.app(scope, receive, send))  # type: ignore[arg-type]
    assert sent == []
    assert api.operations.held.policies == {}


def test_pace_of_a_token(api: Api) -> None:
    client = api.client(READ)
    codes = [client.get(f"{PREFIX}/policies").status_code for _ in range(int(pace.KNOWN.burst) + 1)]
    assert set(codes[:-1]) == {200}
    assert codes[-1] == 429
    refused = client.get(f"{PREFIX}/policies")
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
    assert api.client(OPERATE).get(f"{PREFIX}/policies").status_code == 200, "a token's pace is its own"
    for _ in range(30):
        # A hundred requests a second pass for as long as they go on.
        api.now_s += 0.1
        assert [client.get(f"{PREFIX}/policies").status_code for _ in range(10)] == [200] * 10


def test_guessing_is_slowed_down_and_does_not_fill_the_log(api: Api) -> None:
    with capture_logs() as logs:
        codes = [api.client().get(TOPICS).status_code for _ in range(200)]
    assert codes == [401] * int(pace.UNKNOWN.burst) + [429] * (200 - int(pace.UNKNOWN.burst))
    assert len([event for event in logs if event["log_level"] != "debug"]) == pace.UNKNOWN.burst
    assert api.client(READ).get(TOPICS).status_code == 200, "nobody with a token waits for that"


def test_audit_log(api: Api) -> None:
    values = {"allowed_targets": ["a-body-that-is-not-logged"]}
    with capture_logs() as logs:
        api.client(READ).get(f"{TOPICS}?target=a-query-that-is-not-logged")
        put = api.client(OPERATE).put(f"{PREFIX}/policies/topics/d", json=values)
        api.client(READ).put(f"{PREFIX}/policies/topics/d", json=values)
        api.client("wrong-" * 10).get(TOPICS)
    events = [event for event in logs if event["event"] == "admin_request"]
    told = [(event["log_level"], event["role"], event["method"], event["status"]) for event in events]
    assert told == [
        ("debug", "read", "GET", 200),
        ("info", "operate", "PUT", 200),
        ("info", "read", "PUT", 403),
        ("info", "nobody", "GET", 401),
    ]
    assert events[1]["path"] == f"{PREFIX}/policies/topics/d"
    assert events[1]["request_id"] == put.headers["x-request-id"]
    assert [len(event["token"]) for event in events] == [8, 8, 8, 0]
    for secret in (READ, OPERATE, "wrong-", "not-logged"):
        assert secret not in repr(logs)


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (RuntimeError("/etc/secret"), 500),
        (RefusedError("/etc/secret"), 503),
        (KafkaException(KafkaError(KafkaError._TIMED_OUT, "/etc/secret")), 503),
        (TimeoutError("/etc/secret"), 500),
    ],
)
def test_what_fails_inside_stays_inside(api: Api, failure: Exception, code: int) -> None:
    api.operations.fail(failure)
    with capture_logs(processors=[merge_contextvars]) as logs:
        answer = api.client(OPERATE).get(f"{PREFIX}/policies")
    assert {event["request_id"] for event in logs} == {answer.headers["x-request-id"]}
    assert len(logs) == 2
    problem = answer.json()
    assert (answer.status_code, answer.headers["content-type"]) == (code, "application/problem+json")
    assert problem.keys() == {"type", "title", "status", "detail", "request_id"}
    assert (problem["status"], problem["request_id"]) == (code, answer.headers["x-request-id"])
    assert "secret" not in answer.text
    assert "Traceback" not in answer.text
    assert ("admin_request_failed" in {event["event"] for event in logs}) == (code == 500)
    assert next(event for event in logs if event["event"] == "admin_request")["status"] == code


def test_every_answer_has_an_id_and_is_not_kept(api: Api) -> None:
    answers = [api.client(READ).get(path) for path in (TOPICS, f"{PREFIX}/none")]
    answers += [api.client().get(TOPICS), api.client(OPERATE).put(PAUSE)]
    assert len({answer.headers["x-request-id"] for answer in answers}) == 4
    for answer in answers:
        assert (answer.headers["cache-control"], answer.headers["x-content-type-options"]) == ("no-store", "nosniff")
    assert answers[-1].status_code == 405
    assert answers[-1].headers["allow"] == "POST"


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[" * 30_000,
        b'{"confirm": "\\ud800"}',
        b'{"confirm": 1}',
        b'{"confirm": "d", "more": 1}',
        b"[]",
        b"null",
        b"\xff",
        b"9" * 5_000,
    ],
)
def test_bodies_that_are_none_are_told_without_what_they_hold(api: Api, body: bytes) -> None:
    answer = api.client(OPERATE).post(f"{PREFIX}/topics/d/drain", content=body, headers=JSON)
    assert answer.status_code in (400, 409, 422)
    assert answer.json()["request_id"]
    assert api.operations.held.policies == {}


def test_a_call_that_hangs_ends_for_the_caller(tmp_path: Path) -> None:
    api = Api(tmp_path, timeout_s=0.1)
    api.operations.before = hanging = HangingCall()
    try:
        answer = api.client(READ).get(TOPICS)
        assert answer.status_code == 504
        assert hanging.begun.is_set()
        assert not hanging.ended.is_set()
    finally:
        hanging.released.set()


def test_more_calls_than_can_wait_are_turned_away(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "MAX_UNDER_WAY", 0)
    answer = api.client(READ).get(TOPICS)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")


def test_the_whole_request_has_an_end(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "ANSWERED_WITHIN_S", 0.05)

    async def never() -> Message:
        await asyncio.sleep(30)
        raise AssertionError

    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    scope: Scope = {
        "type": "http",
        "method": "GET",
        "path": TOPICS,
        "query_string": b"",
        "headers": [(b"host", b"localhost"), (b"authorization", f"Bearer {READ}".encode())],
    }
    asyncio.run(api.app(scope, never, send))  # type: ignore[arg-type]
    assert sent[0]["status"] == 408
