"""The client of the admin API, against a server with prepared answers."""

import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from pydantic import ValidationError

from index.errors import ConfigError, DelayRouterError
from sidecar.cli.program import cli
from sidecar.config.units import parse_instant
from sidecar.operations.asking.api_client import ApiClient, read_token
from sidecar.operations.status.answers import (
    AttemptAnswer,
    DueRange,
    Fate,
    IdAnswer,
    IdTrace,
    LookupAnswer,
    PartitionAnswer,
    PendingAnswer,
    ScheduleAnswer,
    SchedulesAnswer,
    StatusAnswer,
    TopicAnswer,
)

TOPIC = TopicAnswer(
    topic="d", pending=3, paused=False, drained=True, partitions=(PartitionAnswer(partition=0, state="drained"),)
)
STATUS = StatusAnswer(topics=(TOPIC,), instances=("r",))
PENDING = PendingAnswer(topic="d", records=3, by_due=(DueRange(within_s=None, records=3),), by_target={"out": 3})
LOOKUP = LookupAnswer(topic="d", partition=0, offset=7, fate=Fate.PENDING, targets=("out",))


@dataclass
class Fake:
    """The answers by method and path, and the requests that came."""

    answers: dict[str, tuple[int, Any]] = field(default_factory=dict)
    asked: list[tuple[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@pytest.fixture
def fake() -> Iterator[Fake]:
    """Run a server with the answers of the test."""
    found = Fake()

    class Handler(BaseHTTPRequestHandler):
        def handle_any(self) -> None:
            length = int(self.headers.get("content-length", 0))
            body = json.loads(self.rfile.read(length)) if length else None
            asked = f"{self.command} {self.path}"
            found.asked.append((asked, body))
            found.headers.append({key.lower(): value for key, value in self.headers.items()})
            code, answer = found.answers.get(asked, (200, {}))
            raw = answer if isinstance(answer, bytes) else json.dumps(answer).encode() if answer is not None else b""
            self.send_response(code)
            self.send_header("content-length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        do_GET = do_POST = do_PATCH = do_DELETE = handle_any  # noqa: N815 - names of http.server

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as in http.server
            """Be silent."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found.port = server.server_address[1]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield found
    server.shutdown()
    server.server_close()


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    """Write a file with a token."""
    file = tmp_path / "token"
    file.write_text("canary-token\n")
    return file


def run(fake: Fake, token_file: Path, *arguments: str, code: int = 0) -> Result:
    environ = {"DELAY_ROUTER_API": fake.url, "DELAY_ROUTER_TOKEN_FILE": str(token_file)}
    # No configuration is needed, and none exists.
    result = CliRunner(env=environ).invoke(cli, [*arguments])
    assert result.exit_code == code, result.output
    assert "canary-token" not in result.output
    return result


def test_questions_are_asked_with_the_token_and_answered_as_from_kafka(fake: Fake, token_file: Path) -> None:
    fake.answers = {
        "GET /api/v1/topics": (200, STATUS.model_dump(mode="json")),
        "GET /api/v1/topics/d": (200, TOPIC.model_dump(mode="json")),
        "GET /api/v1/topics/d/pending": (200, PENDING.model_dump(mode="json")),
        "GET /api/v1/topics/d/partitions/0/records/7": (200, LOOKUP.model_dump(mode="json")),
    }
    assert json.loads(run(fake, token_file, "status", "--json").stdout) == STATUS.model_dump(mode="json")
    assert json.loads(run(fake, token_file, "status", "d", "--json").stdout)["topics"] == [
        TOPIC.model_dump(mode="json")
    ]
    assert json.loads(run(fake, token_file, "pending", "d", "--json").stdout) == PENDING.model_dump(mode="json")
    assert run(fake, token_file, "lookup", "d/0/7").stdout == "d/0/7: pending; to out\n"
    rejected = LookupAnswer(topic="d", partition=0, offset=7, fate=Fate.REJECTED, code="EXPIRED", why="late", id="a-1")
    fake.answers["GET /api/v1/topics/d/partitions/0/records/7"] = (200, rejected.model_dump(mode="json"))
    assert run(fake, token_file, "lookup", "d/0/7").stdout.splitlines() == [
        "d/0/7: rejected EXPIRED; id a-1; late",
        "its message: delay-router rejected list d --code EXPIRED",
    ]
    third = AttemptAnswer(number=3, most=5, exhausted=False, next_waits_ms=(8_000, 90_000), dead_letter="dead")
    spent = third.model_copy(update={"exhausted": True})
    last = third.model_copy(update={"most": 3, "next_waits_ms": ()})
    long = third.model_copy(update={"most": 6})
    forgotten = third.model_copy(update={"most": None, "next_waits_ms": ()})
    for attempt, told in (
        (third, "attempt 3 of 5; if it fails, the record waits 8s, 1m 30s"),
        (long, "attempt 3 of 6; if it fails, the record waits 8s, 1m 30s, ..."),
        (last, "attempt 3 of 3; if it fails, the record goes to dead"),
        (forgotten, "attempt 3"),
        (spent, "exhausted after 3 attempts"),
    ):
        counted = LOOKUP.model_copy(update={"attempt": attempt})
        fake.answers["GET /api/v1/topics/d/partitions/0/records/7"] = (200, counted.model_dump(mode="json"))
        assert run(fake, token_file, "lookup", "d/0/7").stdout.splitlines() == ["d/0/7: pending; to out", told]
    unknown = LookupAnswer(topic="d", partition=0, offset=7, fate=Fate.UNKNOWN, why="it is gone")
    fake.answers["GET /api/v1/topics/d/partitions/0/records/7"] = (200, unknown.model_dump(mode="json"))
    assert run(fake, token_file, "lookup", "d/0/7", code=1).stdout == "d/0/7: unknown; it is gone\n"
    assert {each["authorization"] for each in fake.headers} == {"Bearer canary-token"}


def test_schedules_are_asked_for_page_after_page(fake: Fake, token_file: Path) -> None:
    path = "GET /api/v1/topics/d/schedules"
    of_id = "id=order-7&due_from_ms=2000&due_to_ms=1769853600000&target=out&key=a%26b"
    found = [
        ScheduleAnswer(partition=1, offset=offset, due_ms=due_ms, targets=("out",), id="order-7", series="d/1/3")
        for offset, due_ms in ((9, 1_769_853_000_000), (7, 1_769_852_000_000))
    ]
    first = SchedulesAnswer(topic="d", schedules=(found[0],), next_from="1/log/10")
    then = SchedulesAnswer(topic="d", schedules=(found[1],))
    fake.answers = {
        f"{path}?{of_id}&limit=100": (200, first.model_dump(mode="json")),
        f"{path}?{of_id}&limit=99&from=1%2Flog%2F10": (200, then.model_dump(mode="json")),
        f"{path}?limit=1": (200, first.model_dump(mode="json")),
    }
    due = ["--due-from", "2000", "--due-to", "2026-01-31T10:00:00Z"]
    given = ["--id", "order-7", *due, "--target", "out", "--key", "a&b"]
    shown = json.loads(run(fake, token_file, "schedules", "d", *given, "--json").stdout)
    assert shown == {
        "topic": "d",
        "schedules": [each.model_dump(mode="json") for each in found[::-1]],
        "next_from": None,
    }
    table = run(fake, token_file, "schedules", "d", "--limit", "1").stdout
    assert [line.split() for line in table.splitlines()[:2]] == [
        ["at", "due", "to", "id", "series"],
        ["1/9", "2026-01-31", "09:50:00.000Z", "out", "order-7", "d/1/3"],
    ]
    assert table.splitlines()[-1] == "There may be more: --from 1/log/10"


def test_changes_are_sent_as_the_api_wants_them(fake: Fake, token_file: Path) -> None:
    fake.answers = {
        f"PATCH /api/v1/policies/{scope}": (200, {"values": {}}) for scope in ("default", "topics/d", "targets/out")
    }
    fake.answers |= {
        "DELETE /api/v1/policies/targets/out": (204, None),
        "GET /api/v1/topics/d": (200, TOPIC.model_dump(mode="json")),
    }
    for arguments in (
        ["pause", "d"],
        ["resume", "d"],
        ["pause", "--target", "out"],
        ["resume", "--target", "out"],
        ["pause", "d", "--reason", "billing is moved"],
        ["drain", "d"],
        ["undrain", "d"],
        ["policy", "set", "topic/d", "max_delay=1h", "paused=true", "allowed_targets=a, b"],
        ["policy", "set", "target/out", "records_per_second=5"],
        ["policy", "unset", "default", "tick", "enabled"],
        ["policy", "unset", "target/out", "--all"],
    ):
        run(fake, token_file, *arguments)
    assert fake.asked == [
        ("POST /api/v1/topics/d/pause", {}),
        ("POST /api/v1/topics/d/resume", {}),
        ("POST /api/v1/targets/out/pause", {}),
        ("POST /api/v1/targets/out/resume", {}),
        ("POST /api/v1/topics/d/pause", {"reason": "billing is moved"}),
        ("POST /api/v1/topics/d/drain", {"confirm": "d"}),
        ("POST /api/v1/topics/d/undrain", {}),
        ("PATCH /api/v1/policies/topics/d", {"max_delay": "1h", "paused": True, "allowed_targets": ["a", "b"]}),
        ("PATCH /api/v1/policies/targets/out", {"records_per_second": 5}),
        ("PATCH /api/v1/policies/default", {"tick": None, "enabled": None}),
        ("DELETE /api/v1/policies/targets/out", None),
    ]
    sent = [each for each, (asked, _) in zip(fake.headers, fake.asked, strict=True) if not asked.startswith("DELETE")]
    assert {each["content-type"] for each in sent} == {"application/json"}
    assert run(fake, token_file, "drain", "d", "--wait").stdout == "d: drained\n"


def test_a_pause_ends_by_itself_after_a_while(fake: Fake, token_file: Path) -> None:
    before_ms = time.time_ns() // 1_000_000
    said = run(fake, token_file, "pause", "--target", "out", "--for", "2h").stdout
    ((_, body),) = fake.asked
    assert before_ms + 7_200_000 <= parse_instant(body["until"]) < before_ms + 7_260_000
    assert said == f"out: paused until {body['until']}\n"


def test_rejected_records_are_listed_and_driven_again_by_a_router(fake: Fake, token_file: Path) -> None:
    record = {
        "partition": 0,
        "offset": 7,
        "rejected_ms": 1_000,
        "source": "d/1/40",
        "code": "EXPIRED",
        "message": "late",
    }
    record |= {"id": None, "redriven_before": 2, "is_redriven": None, "obstacle": ""}
    listing = "GET /api/v1/topics/d/rejected?code=EXPIRED&id=%C3%BC&limit=100&from=0%2F3&since_ms=5"
    redriving = "POST /api/v1/topics/d/rejected/redrive"
    report = {"selected": 9, "already_redriven": 1, "over_limit": 1, "not_whole": 0, "to_drive": 5, "driven": 5}
    fake.answers = {
        listing: (200, {"records": [record], "next_from": "1/2"}),
        redriving: (200, {**report, "dry_run": False}),
    }
    selected = ("--code", "EXPIRED", "--id", "ü", "--since", "5")
    shown = run(fake, token_file, "rejected", "list", "d", *selected, "--from", "0/3").stdout
    assert [line.strip() for line in shown.splitlines()] == [
        "0/7  1970-01-01 00:00:01.000Z  EXPIRED",
        "from d/1/40; late; not known whether driven again; driven 2 times before",
        "There may be more: --from 1/2",
    ]
    changes = ("--set-header", "a=ö", "--drop-header", "b", "--max-redriven", "4")
    done = run(fake, token_file, "rejected", "redrive", "d", *selected, *changes).stdout
    assert "9 rejected records selected: 5 driven, 1 driven before, 1 driven 4 times already" in done
    assert "2 are left for the next run" in done
    assert json.loads(run(fake, token_file, "rejected", "redrive", "d", "--json", "--most", "3").stdout)["driven"] == 5
    asked = {"codes": [], "ids": [], "set_headers": [], "drop_headers": [], "max_redriven": 3, "dry_run": False}
    changed = {"set_headers": [{"name": "a", "value": "ö"}], "drop_headers": ["b"], "max_redriven": 4}
    assert [body for _, body in fake.asked[1:]] == [
        {**asked, **changed, "codes": ["EXPIRED"], "ids": ["ü"], "since_ms": 5},
        {**asked, "most": 3},
    ]
    fake.answers[redriving] = (409, {"detail": "another redrive has begun"})
    assert "another redrive has begun" in run(fake, token_file, "rejected", "redrive", "d", code=1).stderr


def test_it_is_shown_who_changed_which_policy(fake: Fake, token_file: Path) -> None:
    set_by = {"by": "alice", "through": "command", "address": "ops-1"}
    changes = [
        {"scope": "target/out", "at_ms": 1_769_853_000_000, "values": None, "by": "", "through": "", "address": ""},
        {"scope": "topic/d", "at_ms": 1_769_852_000_000, "values": {"max_delay": "1h", "paused": True}, **set_by},
    ]
    fake.answers = {"GET /api/v1/policies/changes": (200, {"changes": changes})}
    assert json.loads(run(fake, token_file, "policy", "history", "--json").stdout) == {"changes": changes}
    shown = " ".join(run(fake, token_file, "policy", "history").stdout.split())
    assert "target/out author not known (removed)" in shown
    assert "topic/d by alice through command from ops-1 max_delay = 1h, paused = true" in shown
    fake.answers = {"GET /api/v1/policies/changes": (200, {"changes": []})}
    assert run(fake, token_file, "policy", "history").stdout == "The policies topic tells of no change.\n"


def test_policies_are_shown(fake: Fake, token_file: Path) -> None:
    values: dict[str, dict[str, object]] = {"tick": {"value": "10ms", "origin": "configuration"}}
    values |= {"spread": {"value": "7s", "origin": "configuration", "is_default": True}}
    effective = {"topic": "d", "target": "", "values": values}
    fake.answers = {
        "GET /api/v1/policies": (200, {"policies": {"default": {"tick": "1s"}}, "unreadable": {"topic/x": "why"}}),
        "GET /api/v1/topics/d/policy": (200, effective),
        "GET /api/v1/topics/d/policy?target=o%2F": (200, {**effective, "target": "o/"}),
    }
    shown = run(fake, token_file, "policy", "get")
    assert "1s" in shown.stdout
    assert "warning: policy topic/x cannot be understood: why" in shown.stderr
    short, whole = (run(fake, token_file, "policy", "get", "d", *option).stdout for option in ([], ["--all"]))
    assert ("10ms" in short, "7s" in short, "default" in short) == (True, False, True)
    assert ("10ms" in whole, "7s" in whole, "default" in whole) == (True, True, False)
    assert "name the delay topic" in run(fake, token_file, "policy", "get", "--all", code=2).stderr
    assert json.loads(run(fake, token_file, "policy", "get", "d", "--target", "o/", "--json").stdout)["target"] == "o/"


def test_a_newer_router_may_tell_more(fake: Fake, token_file: Path) -> None:
    more = {**PENDING.model_dump(mode="json"), "new": {"a": 1}}
    more["by_due"][0]["new"] = 1
    fake.answers = {"GET /api/v1/topics/d/pending": (200, more)}
    assert ApiClient(fake.url, "canary-token").pending("d") == PENDING
    assert json.loads(run(fake, token_file, "pending", "d", "--json").stdout) == PENDING.model_dump(mode="json")
    with pytest.raises(ValidationError, match="new"):
        PendingAnswer.model_validate(more)


@pytest.mark.parametrize(
    ("answer", "code", "said"),
    [
        ((404, {"detail": "d is not a delay topic of this router"}), 2, "d is not a delay topic of this router"),
        ((422, {"detail": "policy topic/d: no"}), 2, "policy topic/d: no"),
        ((401, {"detail": "no token that is known"}), 1, "no token that is known"),
        ((503, {"detail": "x" * 5_000}), 1, "x" * 500),
        ((500, b"<html>"), 1, "answers 500, but not as the admin API does; see --api"),
        ((200, b""), 1, "answers 200, but not as the admin API does; see --api"),
        ((200, {"topic": "d"}), 1, "answers, but not as this version does; see --api"),
    ],
)
def test_errors_are_one_line_and_an_exit_code(
    fake: Fake, token_file: Path, answer: tuple[int, Any], code: int, said: str
) -> None:
    fake.answers = {"GET /api/v1/topics/d/pending": answer}
    result = run(fake, token_file, "pending", "d", code=code)
    assert result.stderr == f"error: {fake.url}: {said}\n"


def test_a_router_that_is_not_there(token_file: Path) -> None:
    with pytest.raises(DelayRouterError, match="does not answer"):
        ApiClient("http://127.0.0.1:1", "t").status()


@pytest.mark.parametrize("url", ["ftp://x", "localhost:8081", "http://"])
def test_an_address_that_is_none(url: str) -> None:
    with pytest.raises(ConfigError, match="write https://HOST:PORT"):
        ApiClient(url, "t")


def test_a_token_in_the_clear_is_warned_of() -> None:
    assert ApiClient("http://router:8081", "t").is_in_the_clear
    assert not ApiClient("http://[::1]:8081", "t").is_in_the_clear
    assert not ApiClient("https://router:8081", "t").is_in_the_clear


@pytest.mark.parametrize("content", ["", "two words", "a\nb", "ü", "x" * 5_000])
def test_a_token_file_that_holds_none(tmp_path: Path, content: str) -> None:
    file = tmp_path / "token"
    file.write_text(content)
    with pytest.raises(ConfigError) as raised:
        read_token(file)
    assert str(raised.value) == f"token file {file}: one line with the token alone is wanted"
    with pytest.raises(ConfigError, match="No such file"):
        read_token(tmp_path / "nope")


def test_options_that_do_not_fit(tmp_path: Path, token_file: Path) -> None:
    for arguments, said in (
        (["pending", "d", "--api", "http://localhost:1"], "--api needs --token-file"),
        (["pending", "d", "--ca-file", str(token_file)], "--ca-file belongs to --api"),
        (
            ["status", "--api", "https://x:1", "--token-file", str(token_file), "--ca-file", str(tmp_path / "n")],
            "--ca-file",
        ),
    ):
        result = CliRunner().invoke(cli, arguments)
        assert (result.exit_code, said in result.stderr) == (2, True), result.output


CANCELLED = [{"partition": 1, "offset": 7, "due_ms": 1_893_456_000_000}]


def test_schedules_are_cancelled_and_moved_over_http(fake: Fake, token_file: Path) -> None:
    path = "/api/v1/topics/d/schedules/order/7"
    fake.answers = {
        f"DELETE {path}?if_due_ms=5&partition=1": (200, {"topic": "d", "id": "order/7", "cancelled": CANCELLED}),
        f"PATCH {path}": (200, {"topic": "d", "id": "order/7", "moved": CANCELLED, "due_ms": 9}),
        "DELETE /api/v1/topics/d/schedules/none": (404, {"detail": "nothing of this id is pending"}),
    }
    told = run(fake, token_file, "cancel", "d", "order/7", "--if-due", "5", "--partition", "1").stdout
    assert told == "d/1/7 cancelled; it was due 2030-01-01 00:00:00.000Z\n"
    assert "d/1/7 moved; " in run(fake, token_file, "move", "d", "order/7", "--at", "9").stdout
    assert fake.asked[-1] == (f"PATCH {path}", {"due_ms": 9})
    began_ms = time.time_ns() // 1_000_000
    run(fake, token_file, "move", "d", "order/7", "--after", "1h")
    assert 0 <= fake.asked[-1][1]["due_ms"] - began_ms - 3_600_000 < 60_000
    assert "nothing of this id is pending" in run(fake, token_file, "cancel", "d", "none", code=2).stderr


def test_schedules_are_cancelled_by_query_over_http(fake: Fake, token_file: Path) -> None:
    path = "POST /api/v1/topics/d/cancellations"
    fake.answers = {path: (200, {"topic": "d", "matched": None, "estimated": 1_207})}
    where = '{"due_from": "1970-01-01T00:00:05Z", "id_prefix": "a", "header": {"name": "h", "value": "7"}}'
    assert run(fake, token_file, "cancel", "d", "--where", where).stdout == "about 1,207 schedules cancelled\n"
    body = {"due_from_ms": 5_000, "id_prefix": "a", "header": {"name": "h", "value": "7"}}
    assert fake.asked == [(path, body)]


def test_a_query_is_counted_over_http_in_as_many_calls_as_it_takes(fake: Fake, token_file: Path) -> None:
    path = "POST /api/v1/topics/d/cancellations/dry-run"
    fake.answers = {
        path: (200, {"topic": "d", "matching": 1_000, "first": [], "next_from": "1/log/7"}),
        f"{path}?from=1%2Flog%2F7": (200, {"topic": "d", "matching": 207, "first": [], "next_from": None}),
    }
    asked = ["cancel", "d", "--where", '{"target": "out"}', "--partition", "1", "--dry-run"]
    assert run(fake, token_file, *asked).stdout == "1,207 schedules match; nothing was cancelled\n"
    assert fake.asked == [(each, {"target": "out", "partition": 1}) for each in fake.answers]


def test_records_are_sent_over_http(fake: Fake, token_file: Path, tmp_path: Path) -> None:
    path = "POST /api/v1/topics/d/records"
    written = {"topic": "d", "partition": 1, "offset": 7, "due_ms": 1_893_456_000_000, "targets": ["out"]}
    fake.answers = {path: (201, written)}
    done = run(fake, token_file, "send", "d", "--key", "k", "--value", "v", "--after", "1h", "--to", "out")
    assert done.stdout == "d/1/7 due 2030-01-01 00:00:00.000Z\n"
    headers = [{"name": "deliver-after", "value": "3600000"}, {"name": "deliver-to", "value": "out"}]
    assert fake.asked == [(path, {"key": "k", "value": "v", "headers": headers})]
    binary = tmp_path / "value"
    binary.write_bytes(b"\xff")
    assert json.loads(run(fake, token_file, "send", "d", "--value-file", str(binary), "--json").stdout) == [written]
    assert fake.asked[-1] == (path, {"key": None, "value": {"base64": "/w=="}, "headers": []})
    run(fake, token_file, "send", "d", "--null", "--force", code=2)
    assert len(fake.asked) == 2
    fake.answers = {path: (422, {"detail": "MAX_DELAY_EXCEEDED: too long; nothing was written"})}
    assert "MAX_DELAY_EXCEEDED" in run(fake, token_file, "send", "d", "--null", "--after", "99d", code=2).stderr


def test_what_became_of_an_id_is_told_over_http(fake: Fake, token_file: Path) -> None:
    trace = IdTrace(fate=Fate.RELEASED, place="out/0/7", at_ms=1_893_456_000_000, why="d/0/3")
    found = IdAnswer(topic="d", id="order/7", traces=(trace,), unread=("of out only the newest were looked through",))
    nothing = IdAnswer(topic="d", id="none", traces=())
    fake.answers = {
        "GET /api/v1/topics/d/ids/order/7": (200, found.model_dump(mode="json")),
        "GET /api/v1/topics/d/ids/none": (200, nothing.model_dump(mode="json")),
    }
    *_, line, note = run(fake, token_file, "find", "d", "order/7").stdout.splitlines()
    assert line.split() == ["released", "out/0/7", "2030-01-01", "00:00:00.000Z", "d/0/3"]
    assert note == "note: of out only the newest were looked through"
    assert json.loads(run(fake, token_file, "find", "d", "order/7", "--json").stdout) == found.model_dump(mode="json")
    assert "nothing of none is pending" in run(fake, token_file, "find", "d", "none", code=1).stdout
