"""The effect of each path of the admin API, with doubles behind it."""

import hashlib
import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from jsonschema import Draft202012Validator

from index.errors import ConfigError
from index.protocol.where import CancelWhere, WantedHeader
from sidecar.config.model import Config
from sidecar.http.api.application import PREFIX, application, document
from sidecar.http.guard import NO_SUCH_PATH
from sidecar.operations import desk
from sidecar.operations.controls.ordering import UnknownPartitionError
from sidecar.operations.controls.orders import ControlOrder, QueryOrder
from sidecar.operations.controls.receipts import ChangedError, NoReceiptError, NothingPendingError
from sidecar.operations.finding.wanted import ScheduleFilter
from sidecar.operations.status.answers import (
    IdAnswer,
    LookupAnswer,
    PendingAnswer,
    SchedulesAnswer,
    StatusAnswer,
    TopicAnswer,
)
from sidecar.operations.watching.history import HistoryAnswer
from sidecar.operations.watching.routers import RoutersAnswer
from sidecar.policies.policy import DEFAULT, Scope, ScopeKind, keys_in, policy_of, target_scope, topic_scope
from tests.support.admin_api import OPERATE, OPERATE_SEES, PRODUCE, READ, SEES, Api, concrete, operations

ONE_TOPIC = {"kafka": {"bootstrap.servers": "b:1"}, "delay_topics": [{"name": "d", "default_target": "out"}]}


@pytest.fixture
def api(tmp_path: Path) -> Api:
    return Api(tmp_path)


def get(api: Api, path: str, code: int = 200) -> Any:
    answer = api.client(READ).get(PREFIX + path)
    assert answer.status_code == code, answer.text
    return answer.json()


def do(api: Api, method: str, path: str, body: Any = None, code: int = 200) -> Any:
    answer = api.client(OPERATE).request(method, PREFIX + path, json=body)
    assert answer.status_code == code, answer.text
    return answer.json() if answer.content else None


def set_in(api: Api, scope: Scope) -> dict[str, object]:
    found: dict[str, object] = get(api, "/policies")["policies"].get(str(scope), {})
    return found


@pytest.mark.parametrize("partitions", [0, 1, 49, 50, 51, 120])
def test_status_in_pieces_is_the_status(api: Api, partitions: int) -> None:
    api.operations.partitions = partitions
    assert StatusAnswer.model_validate(get(api, "/topics")) == api.operations.status()
    assert TopicAnswer.model_validate(get(api, "/topics/e")) == api.operations.status("e").topics[0]


def test_status_of_no_topic_at_all(api: Api) -> None:
    api.operations.topics = []
    assert get(api, "/topics") == {"topics": [], "instances": ["one", "two"], "kernels": {"one": "native"}}


def test_pending_and_records(api: Api) -> None:
    assert PendingAnswer.model_validate(get(api, "/topics/d/pending")) == api.operations.pending("d")
    found = LookupAnswer.model_validate(get(api, "/topics/d/partitions/1/records/9"))
    assert found == api.operations.lookup("d", 1, 9)
    assert IdAnswer.model_validate(get(api, "/topics/d/ids/order/7")) == api.operations.find("d", b"order/7")
    assert "is not a delay topic" in get(api, "/topics/nothing/ids/order-7", 404)["detail"]
    furthest = get(api, f"/topics/d/partitions/0/records/{2**63 - 1}")
    assert furthest["offset"] == 2**63 - 1


def test_routers_and_the_last_hour(api: Api) -> None:
    assert RoutersAnswer.model_validate(get(api, "/routers")) == api.operations.routers()
    for path, topic in (("/history", ""), ("/topics/d/history", "d")):
        assert HistoryAnswer.model_validate(get(api, path)) == api.operations.history(topic)
    get(api, "/topics/nothing/history", 404)


def test_a_command_keeps_no_hour(api: Api) -> None:
    told = desk.Operations.history(api.operations, "d")
    assert told.minutes == ()
    assert "keeps the last hour" in told.why


def test_schedules_one_by_one(api: Api) -> None:
    first = SchedulesAnswer.model_validate(get(api, "/topics/d/schedules?limit=4"))
    assert (len(first.schedules), first.next_from, api.operations.wanted) == (4, "0/log/4", ScheduleFilter("d"))
    rest = get(api, f"/topics/d/schedules?limit=4&from={first.next_from}")
    assert ([each["offset"] for each in rest["schedules"]], rest["next_from"]) == ([4, 5, 6], None)
    get(api, "/topics/d/schedules?id=order%2F7&due_from_ms=5&due_to_ms=9&target=out")
    assert api.operations.wanted == ScheduleFilter("d", b"order/7", 5, 9, "out")
    get(api, "/topics/d/schedules?recurring=true&upcoming=5")
    assert api.operations.wanted == ScheduleFilter("d", recurring=True)
    get(api, "/topics/d/schedules?upcoming=6", 422)


def test_keys_are_for_who_may_see_what_is_in_records(api: Api) -> None:
    for token in (READ, OPERATE):
        shown = api.client(token).get(f"{PREFIX}/topics/d/schedules")
        assert "canary" not in shown.text
        assert {each["key"] for each in shown.json()["schedules"]} == {None}
        api.operations.wanted = None
        assert api.client(token).get(f"{PREFIX}/topics/d/schedules?key=canary").status_code == 403
        assert api.operations.wanted is None, "whether there is such a key"
    shown = api.client(SEES).get(f"{PREFIX}/topics/d/schedules?key=a%26b")
    assert {each["key"] for each in shown.json()["schedules"]} == {"canary"}
    assert api.operations.wanted == ScheduleFilter("d", key=b"a&b")


def test_what_is_pending_under_an_id_is_cancelled(api: Api) -> None:
    told = do(api, "DELETE", "/topics/d/schedules/order%2F7?if_due_ms=9&partition=3")
    assert told == {"topic": "d", "id": "order/7", "cancelled": [{"partition": 3, "offset": 7, "due_ms": 1_000}]}
    do(api, "DELETE", "/topics/d/schedules/order-8")
    assert api.operations.controls == [("d", ControlOrder(b"order/7", 9, 3)), ("d", ControlOrder(b"order-8"))]


@pytest.mark.parametrize("id_", ["7\n", "\n", "7\n7", "7\r\n", "7\u2028", "/", "7/"])
def test_an_id_may_hold_any_character(api: Api, id_: str) -> None:
    path = f"/topics/d/schedules/{quote(id_, safe='')}"
    assert do(api, "DELETE", path)["id"] == id_
    assert do(api, "PATCH", path, {"due_ms": 1_900_000_000_000})["id"] == id_
    move = ControlOrder(id_.encode(), moves_to=("deliver-at", b"1900000000000"))
    assert api.operations.controls == [("d", ControlOrder(id_.encode())), ("d", move)]
    assert replace(api, f"{quote(id_, safe='')}?if_due_ms=9", {}, 200)["id"] == id_
    assert get(api, f"/topics/d/ids/{quote(id_, safe='')}")["id"] == id_


def test_a_path_ends_with_its_last_character(api: Api) -> None:
    fixed = [(method, path) for method, path, _ in operations() if not path.endswith("{id}")]
    assert len(fixed) > 40
    for method, path in fixed:
        api.now_s += 1
        answer = api.client(SEES if method == "GET" else OPERATE).request(method, concrete(path) + "%0A")
        assert (answer.status_code, answer.json()["detail"]) == (404, NO_SUCH_PATH), (method, path)


def test_all_that_match_are_cancelled(api: Api) -> None:
    body = {"id_prefix": "order-", "due_to_ms": 1_900_000_000_000, "header": {"name": "Cookie", "value": ""}}
    told = do(api, "POST", "/topics/d/cancellations", {**body, "partition": 3})
    assert told == {"topic": "d", "matched": 1_207, "estimated": None}
    where = CancelWhere("", None, 1_900_000_000_000, b"order-", WantedHeader("Cookie", b""))
    assert api.operations.controls == [("d", QueryOrder(where, 3))]
    told = do(api, "POST", "/topics/d/cancellations", {"target": "out"})
    assert told == {"topic": "d", "matched": None, "estimated": 90_000}
    nothing = {"due_from_ms": 9, "due_to_ms": 9}
    assert do(api, "POST", "/topics/d/cancellations", nothing) == {"topic": "d", "matched": 0, "estimated": None}
    assert len(api.operations.controls) == 2


def test_a_dry_run_counts_what_the_same_body_would_cancel(api: Api) -> None:
    path, body = "/topics/d/cancellations/dry-run", {"id_prefix": "order-", "partition": 1}
    first = do(api, "POST", path, body)
    assert (first["matching"], first["next_from"]) == (1_000, "1/log/7")
    assert [(each["id"], each["key"], each["due_ms"]) for each in first["first"]] == [
        ("order-7", None, 1_900_000_000_000)
    ]
    rest = do(api, "POST", f"{path}?from={first['next_from']}", body)
    assert (rest["matching"], rest["next_from"]) == (207, None)
    order = QueryOrder(CancelWhere(id_prefix=b"order-"), 1)
    assert api.operations.dry_runs == [("d", order, ""), ("d", order, "1/log/7")]
    assert api.operations.controls == [], "nothing is cancelled"
    do(api, "POST", f"{path}?from=here", body, code=422)
    do(api, "POST", "/topics/nothere/cancellations/dry-run", body, code=404)


def test_no_count_confirms_a_guess_at_a_header(tmp_path: Path) -> None:
    api, path = Api(tmp_path, masked_headers=["*token*"]), f"{PREFIX}/topics/d/cancellations/dry-run"

    def count(token: str, name: str) -> tuple[int, str]:
        answer = api.client(token).post(path, json={"header": {"name": name, "value": "7"}})
        return answer.status_code, answer.json().get("detail", "")

    code, why = count(OPERATE, "customer")
    assert (code, why.endswith("counts by header are for +payload; leave header out")) == (403, True)
    masked = "admin.masked_headers has X-Token, so nobody may count by its values; leave header out"
    assert count(OPERATE_SEES, "X-Token") == (403, masked)
    assert api.operations.dry_runs == [], "the number of them"
    assert count(OPERATE_SEES, "customer") == (200, "")
    assert [order.where.header for _, order, _ in api.operations.dry_runs] == [WantedHeader("customer", b"7")]


@pytest.mark.parametrize("token", [READ, SEES, PRODUCE])
def test_a_dry_run_takes_the_role_of_the_cancellation(api: Api, token: str) -> None:
    answer = api.client(token).post(f"{PREFIX}/topics/d/cancellations/dry-run", json={"target": "out"})
    assert (answer.status_code, api.operations.dry_runs) == (403, [])


def test_what_waits_for_which_attempt(api: Api) -> None:
    told = {"topic": "d", "by_attempt": {"1": 2, "4-7": 1}, "exhausted": 1}
    assert get(api, "/topics/d/attempts") == {**told, "records": 5_000, "is_whole": True}
    assert get(api, "/topics/d/attempts?limit=9") == {**told, "records": 9, "is_whole": False}
    get(api, "/topics/d/attempts?limit=0", 422)
    get(api, "/topics/nothere/attempts", 404)


@pytest.mark.parametrize(
    "body",
    [
        *({}, {"target": None}, {"partition": 3}, {"target": ""}, {"traget": "out"}, {"id_prefix": ""}),
        *({"due_to_ms": 1_900_000_000}, {"due_from_ms": "5"}, {"header": {"name": "a"}}, {"header": "a"}),
    ],
)
def test_a_predicate_that_cannot_be_followed_is_refused(api: Api, body: dict[str, Any]) -> None:
    do(api, "POST", "/topics/d/cancellations", body, code=422)
    do(api, "POST", "/topics/d/cancellations/dry-run", body, code=422)
    assert (api.operations.controls, api.operations.dry_runs) == ([], [])


def test_what_is_pending_under_an_id_is_moved(api: Api) -> None:
    told = do(api, "PATCH", "/topics/d/schedules/order%2F7?if_due_ms=9", {"due_ms": 1_900_000_000_000})
    moved = [{"partition": 0, "offset": 7, "due_ms": 1_000}]
    assert told == {"topic": "d", "id": "order/7", "moved": moved, "due_ms": 1_900_000_000_000}
    order = ControlOrder(b"order/7", 9, moves_to=("deliver-at", b"1900000000000"))
    assert api.operations.controls == [("d", order)]


@pytest.mark.parametrize("body", [{}, {"due_ms": None}, {"due_ms": "1"}, {"due_ms": True}, {"due_ms": 1_900_000_000}])
def test_a_move_to_no_time_is_refused(api: Api, body: dict[str, Any]) -> None:
    do(api, "PATCH", "/topics/d/schedules/order-7", body, code=422)
    assert api.operations.controls == []


@pytest.mark.parametrize(
    ("fails", "code"),
    [
        (NothingPendingError("nothing"), 404),
        (UnknownPartitionError("d has no partition 99"), 404),
        (ChangedError("another time"), 409),
        (NoReceiptError(Config.model_validate(ONE_TOPIC).delay_topics[0], "x is cancelled", [(0, 5)]), 504),
        (ConfigError("INVALID_SCHEDULE"), 422),
    ],
)
def test_what_is_not_cancelled_is_told_definitely(api: Api, fails: Exception, code: int) -> None:
    api.operations.fail(fails)
    assert do(api, "DELETE", "/topics/d/schedules/order-7?partition=99", code=code)["detail"] == str(fails)
    moved = do(api, "PATCH", "/topics/d/schedules/order-7?partition=99", {"due_ms": 1_900_000_000_000}, code=code)
    assert moved["detail"] == str(fails)


def replace(api: Api, path: str, body: Any, code: int, token: str = OPERATE) -> Any:
    answer = api.client(token).post(f"{PREFIX}/topics/d/schedules/{path}", json=body)
    assert answer.status_code == code, answer.text
    return answer.json()


def test_a_record_replaces_what_is_pending_under_its_id(api: Api) -> None:
    body = {"key": "k", "value": "new", "headers": [{"name": "deliver-after", "value": "5m"}]}
    told = replace(api, "order%2F7?if_due_ms=9", body, 200)
    assert (told["id"], told["partition"], told["offset"]) == ("order/7", 1, 0)
    assert told["replaced"] == [{"partition": 1, "offset": 7, "due_ms": 1_000}]
    named = [("deliver-id", b"order/7"), ("deliver-replace", b"true"), ("deliver-if-due", b"9")]
    assert api.operations.written == [("d", b"k", b"new", [("deliver-after", b"5m"), *named])]


def test_what_could_become_a_new_schedule_is_not_written(api: Api) -> None:
    for body in ({"key": "k"}, {"headers": [{"name": "deliver-if-due", "value": "9"}]}, {"wrong": 1}):
        detail = replace(api, "order-7", body, 403)["detail"]
        assert "a replacement without if_due_ms may be a new schedule" in detail
        assert detail.endswith("a new schedule takes one of produce")
    replace(api, "order-7?if_due_ms=", {}, 422)
    assert api.operations.written == []


def test_what_cannot_replace_is_not_written(api: Api) -> None:
    again = {"headers": [{"name": "deliver-id", "value": "other"}]}
    assert "AMBIGUOUS_HEADER" in replace(api, "order-7?if_due_ms=9", again, 422)["detail"]
    assert "INVALID_SCHEDULE" in replace(api, "x" * 300 + "?if_due_ms=9", {}, 422)["detail"]
    for token in (READ, PRODUCE):
        assert replace(api, "order-7?if_due_ms=9", {}, 403, token)["detail"].endswith("it takes one of operate")
    assert api.operations.written == []
    api.operations.fail(ChangedError("another time"))
    assert replace(api, "order-7?if_due_ms=9", {}, 409)["detail"] == "another time"


def test_who_may_only_read_cancels_nothing(api: Api) -> None:
    for token in (READ, PRODUCE):
        assert api.client(token).delete(f"{PREFIX}/topics/d/schedules/order-7").status_code == 403
        moved = api.client(token).patch(f"{PREFIX}/topics/d/schedules/order-7", json={"due_ms": 0})
        assert moved.status_code == 403
    do(api, "DELETE", "/topics/nothere/schedules/order-7", code=404)
    do(api, "DELETE", "/topics/d/schedules/" + "x" * 513, code=422)
    assert api.operations.controls == []


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=501", "from=0", "from=0/log/1%0A", "due_from_ms=soon", "id=", "target="]
)
def test_a_question_for_schedules_that_cannot_be(api: Api, query: str) -> None:
    get(api, f"/topics/d/schedules?{query}", 422)


def test_it_is_told_who_changed_which_policy(api: Api) -> None:
    do(api, "PUT", "/policies/topics/d", {"max_delay": "2h"})
    do(api, "PATCH", "/policies/targets/a", {"records_per_second": 5})
    do(api, "POST", "/topics/d/pause", {"reason": "<b>moved</b>"})
    do(api, "DELETE", "/policies/targets/a", code=204)
    changes = get(api, "/policies/changes")["changes"]
    assert [(each["scope"], each["values"]) for each in changes] == [
        ("target/a", None),
        ("topic/d", {"max_delay": "2h", "paused": True, "paused_reason": "<b>moved</b>"}),
        ("target/a", {"records_per_second": 5}),
        ("topic/d", {"max_delay": "2h"}),
    ]
    name = hashlib.sha256(OPERATE.encode()).hexdigest()[:8]
    assert {(each["by"], each["through"], each["address"]) for each in changes} == {
        (f"token {name} (operate)", "admin API", "127.0.0.1")
    }


def test_who_asks(api: Api) -> None:
    for token, role in ((READ, "read"), (OPERATE, "operate"), (SEES, "read"), (PRODUCE, "produce")):
        name = hashlib.sha256(token.encode()).hexdigest()[:8]
        told = {"role": role, "sees_payload": token == SEES, "token": name, "topic_link": "", "record_link": ""}
        assert api.client(token).get(f"{PREFIX}/caller").json() == told


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/topics/unknown", 404),
        ("/topics/unknown/pending", 404),
        ("/topics/unknown/policy", 404),
        ("/topics/unknown/partitions/0/records/0", 404),
        ("/topics/d/partitions/7/records/0", 404),
        ("/topics/%00/pending", 422),
        ("/topics/a%20b", 422),
        (f"/topics/{'x' * 250}", 422),
        ("/topics/d/partitions/-1/records/0", 422),
        ("/topics/d/partitions/1_0/records/0", 422),
        ("/topics/d/partitions/%D9%A1/records/0", 422),
        (f"/topics/d/partitions/{2**31}/records/0", 422),
        (f"/topics/d/partitions/0/records/{2**63}", 422),
        ("/topics/d/partitions/0/records/1.0", 422),
        ("/topics/d/policy?target=..", 422),
    ],
)
def test_what_there_is_not(api: Api, path: str, code: int) -> None:
    assert get(api, path, code)["status"] == code


def test_a_policy_of_each_kind_comes_and_goes(api: Api) -> None:
    for path, scope, values in (
        ("/policies/default", DEFAULT, {"max_delay": "2h", "enabled": True}),
        ("/policies/topics/d", topic_scope("d"), {"allowed_targets": ["a"], "tick": "20ms"}),
        ("/policies/targets/a", target_scope("a"), {"records_per_second": 5, "bytes_per_second": "1MiB"}),
    ):
        get(api, path, 404)
        assert do(api, "PUT", path, values) == {"scope": str(scope), "values": values}
        assert get(api, path) == {"scope": str(scope), "values": values}
        assert api.operations.held.get(scope) == policy_of(scope, values)
        do(api, "DELETE", path, code=204)
        get(api, path, 404)
        do(api, "DELETE", path, code=204)


def test_patch_sets_and_unsets_and_leaves_the_rest(api: Api) -> None:
    do(api, "PUT", "/policies/default", {"max_delay": "2h", "tick": "20ms"})
    done = do(api, "PATCH", "/policies/default", {"tick": None, "expire_after": "1m"})
    assert done["values"] == {"max_delay": "2h", "expire_after": "1m"}
    assert do(api, "PUT", "/policies/default", {"tick": "1s"})["values"] == {"tick": "1s"}


@pytest.mark.parametrize(
    ("path", "values", "told"),
    [
        ("/policies/default", {}, "no key is named"),
        ("/policies/default", {"max_delay": "soon"}, "max_delay: a duration is written like"),
        ("/policies/default", {"max_delai": "1h"}, "did you mean 'max_delay'?"),
        ("/policies/default", {"allowed_targets": ["x"]}, "set them for topic/NAME"),
        ("/policies/topics/d", {"allowed_targets": ["__consumer_offsets"]}, "never a target"),
        ("/policies/targets/a", {"tick": "1s"}, "belongs to a delay topic"),
        ("/policies/targets/d", {"max_delay": "1s"}, "the router's own and never a target"),
        ("/policies/default", {"bootstrap.servers": "evil:1"}, "unknown key"),
        ("/policies/default", {"paused": 1}, "paused: Input should be a valid boolean"),
    ],
)
def test_a_policy_that_cannot_be(api: Api, path: str, values: dict[str, Any], told: str) -> None:
    assert told in do(api, "PUT", path, values, 422)["detail"]
    do(api, "PATCH", path, values, 422)
    assert api.operations.held.policies == {}


def test_null_unsets_in_a_patch_only(api: Api) -> None:
    told = do(api, "PUT", "/policies/default", {"max_delay": "1h", "tick": None}, 422)
    assert told["detail"] == "null is no value; leave the key out, or use PATCH"


def test_a_topic_that_is_not_ours_gets_no_policy_but_can_lose_one(api: Api) -> None:
    do(api, "PUT", "/policies/topics/other", {"max_delay": "1h"}, 404)
    do(api, "DELETE", "/policies/topics/other", code=204)


def test_effective_values_and_where_they_come_from(api: Api) -> None:
    do(api, "PUT", "/policies/default", {"tick": "20ms"})
    do(api, "PUT", "/policies/targets/a", {"max_delay": "1s"})
    found = get(api, "/topics/d/policy")
    assert found["values"]["max_delay"] == {"value": "1h", "origin": "configuration", "is_default": False}
    assert found["values"]["tick"] == {"value": "20ms", "origin": "default", "is_default": False}
    assert found["values"]["drained"] == {"value": False, "origin": "configuration", "is_default": True}
    of_target = get(api, "/topics/d/policy?target=a")
    set_there = {"value": "1s", "origin": "target/a", "is_default": False}
    assert (of_target["target"], of_target["values"]["max_delay"]) == ("a", set_there)
    assert "tick" not in of_target["values"]


def test_switches(api: Api) -> None:
    for path, scope, key in (("topics/d", topic_scope("d"), "paused"), ("targets/a", target_scope("a"), "paused")):
        assert do(api, "POST", f"/{path}/pause", {}) == {"scope": str(scope), "key": key, "value": True}
        assert set_in(api, scope) == {"paused": True}
        assert do(api, "POST", f"/{path}/resume", {})["value"] is False
        assert set_in(api, scope) == {}


def test_a_pause_with_its_end_and_a_reason(api: Api) -> None:
    terms = {"until": "2999-01-31T10:00:00+02:00", "reason": "billing is moved"}
    do(api, "POST", "/targets/a/pause", terms)
    said = {"paused": True, "paused_until": "2999-01-31T08:00:00Z", "paused_reason": "billing is moved"}
    assert set_in(api, target_scope("a")) == said
    assert get(api, "/topics/d/policy?target=a")["values"]["paused_until"]["value"] == said["paused_until"]
    for wrong in ({"until": 5}, {"until": "tomorrow"}, {"reason": "x" * 201}, {"for": "2h"}):
        do(api, "POST", "/targets/a/pause", wrong, 422)
    do(api, "POST", "/targets/a/resume", terms, 422)
    do(api, "POST", "/targets/a/resume", {})
    assert set_in(api, target_scope("a")) == {}


def test_drain_wants_the_name_again(api: Api) -> None:
    do(api, "POST", "/topics/d/drain", {}, 422)
    do(api, "POST", "/topics/d/drain", {"confirm": "e"}, 409)
    assert set_in(api, topic_scope("d")) == {}
    assert do(api, "POST", "/topics/d/drain", {"confirm": "d"})["value"] is True
    assert set_in(api, topic_scope("d")) == {"drained": True}
    do(api, "POST", "/topics/d/undrain", {})
    assert set_in(api, topic_scope("d")) == {}


@pytest.mark.parametrize("verb", ["pause", "resume", "drain", "undrain"])
def test_switches_of_a_topic_that_is_not_ours(api: Api, verb: str) -> None:
    do(api, "POST", f"/topics/other/{verb}", {"confirm": "other"} if verb == "drain" else {}, 404)


def test_many_readers_share_a_look_and_whoever_has_changed_something_sees_it(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(desk, "FRESH_FOR_S", 3_600)
    for _ in range(20):
        get(api, "/policies")
    assert api.operations.known.asked == 1
    do(api, "POST", "/topics/d/pause", {})
    assert set_in(api, topic_scope("d")) == {"paused": True}
    monkeypatch.setattr(desk, "FRESH_FOR_S", 0)
    get(api, "/policies")
    get(api, "/policies")
    assert api.operations.known.asked == 5, "the change itself was a look"


def test_the_document_is_served_and_names_no_other_site(api: Api) -> None:
    served = get(api, "/openapi.json")
    assert served == json.loads(json.dumps(document(application(api.backend))))
    assert served["openapi"].startswith("3.")
    assert "://" not in json.dumps(served)
    assert {"/topics", "/policies", "/topics/{topic}/drain", "/targets/{target}/pause"} <= {
        path.removeprefix(PREFIX) for path in served["paths"]
    }
    names = [each["operationId"] for methods in served["paths"].values() for each in methods.values()]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("kind", ScopeKind)
def test_the_document_knows_the_keys_of_each_scope(api: Api, kind: ScopeKind) -> None:
    path = {"default": "default", "topic": "topics/{topic}", "target": "targets/{target}"}[kind.value]
    methods = get(api, "/openapi.json")["paths"][f"{PREFIX}/policies/{path}"]
    for method, null_is_fine in (("put", False), ("patch", True)):
        schema = methods[method]["requestBody"]["content"]["application/json"]["schema"]
        Draft202012Validator.check_schema(schema)
        assert schema["properties"].keys() == set(keys_in(kind))
        validator = Draft202012Validator(schema)
        assert validator.is_valid({"max_delay": "1h"})
        assert validator.is_valid({"max_delay": None}) == null_is_fine
        for wrong in ({}, {"max_delay": 1}, {"max_delay": "1 h"}, {"other": 1}, {"paused": "yes"}):
            assert not validator.is_valid(wrong), wrong
