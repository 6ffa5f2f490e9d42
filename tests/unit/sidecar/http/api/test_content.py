"""The headers and the value of one record by the admin API: the parts that each role sees, and the masked ones."""

from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from index.protocol.record import Record
from index.rules.unreadable import DELAY_UNREADABLE_HEADERS
from sidecar.http.api.application import PREFIX
from sidecar.http.api.content import SHOWN_HEADER_BYTES, SHOWN_HEADERS, SHOWN_VALUE_BYTES, part_of
from tests.support.admin_api import OPERATE, PRODUCE, READ, SEES, Api

KEPT = "/topics/d/partitions/1/records/7"
REJECTED = "/topics/d/rejected/partitions/0/records/0"
SIZES = [6, 6, 7, 0]


@pytest.fixture
def api(tmp_path: Path) -> Api:
    made = Api(tmp_path)
    headers = [("trace", b"canary"), ("X-Api_Key", b"canary"), ("Authorization", b"canary!"), ("none", None)]
    made.operations.content = Record(b"canary", b'{"a": "canary"}', headers, 1_000)
    made.operations.reject("d", "EXPIRED")
    made.operations.reject("e", "EXPIRED")
    return made


def get(api: Api, path: str, code: int = 200, token: str = READ) -> Any:
    answer = api.client(token).get(PREFIX + path)
    assert answer.status_code == code, answer.text
    if token != SEES:
        assert "canary" not in answer.text
        assert b"canary".hex() not in answer.text
    return answer.json()


@pytest.mark.parametrize("token", [READ, OPERATE])
@pytest.mark.parametrize("path", [KEPT, REJECTED])
def test_without_payload_names_and_sizes_are_all_there_is(api: Api, path: str, token: str) -> None:
    told = get(api, f"{path}/headers", token=token)
    assert {each["value"]["form"] for each in told["headers"]} <= {"masked", "null"}
    assert told["key"] == {"form": "masked", "size_bytes": 6, "shown": "", "is_cut": False}
    assert told["value_bytes"] in (15, 6)
    assert "values are for +payload" in get(api, f"{path}/value", 403, token)["detail"]


def test_who_may_only_produce_sees_nothing(api: Api) -> None:
    for path in (KEPT, REJECTED):
        get(api, f"{path}/headers", 403, PRODUCE)
        get(api, f"{path}/value", 403, PRODUCE)


def test_with_payload_all_is_shown_but_secrets(api: Api) -> None:
    told = get(api, f"{KEPT}/headers", token=SEES)
    assert (told["topic"], told["partition"], told["offset"], told["timestamp_ms"]) == ("d", 1, 7, 1_000)
    assert (told["key"]["shown"], told["value_bytes"], told["more_headers"]) == ("canary", 15, 0)
    found = {each["name"]: (each["value"]["form"], each["value"]["shown"]) for each in told["headers"]}
    masked = ("masked", "")
    assert found == {
        "trace": ("text", "canary"),
        "X-Api_Key": masked,
        "Authorization": masked,
        "none": ("null", ""),
    }
    assert [each["value"]["size_bytes"] for each in told["headers"]] == SIZES
    value = get(api, f"{KEPT}/value", token=SEES)["value"]
    assert value == {"form": "json", "size_bytes": 15, "shown": '{"a": "canary"}', "is_cut": False}
    assert get(api, f"{REJECTED}/value", token=SEES)["value"]["shown"] == "canary"
    assert [each["name"] for each in get(api, f"{REJECTED}/headers", token=SEES)["headers"]] == ["c"]


def test_the_names_to_mask_can_be_chosen_but_for_headers_in_one_piece(tmp_path: Path) -> None:
    api = Api(tmp_path, masked_headers=["Cust?mer", "*-SECRET"])
    names = ("customer", "a-secret", "A-Secret-not", "authorization", DELAY_UNREADABLE_HEADERS)
    api.operations.content = Record(None, None, [(name, b"canary") for name in names], 1_000)
    told = get(api, f"{KEPT}/headers", token=SEES)
    assert [each["value"]["form"] for each in told["headers"]] == ["masked", "masked", "text", "text", "masked"]
    assert (told["key"]["form"], told["value_bytes"]) == ("null", None)
    assert get(api, f"{KEPT}/value", token=SEES)["value"]["form"] == "null"


def test_a_large_record_is_cut(api: Api) -> None:
    headers = [("n" * 300, b"x" * 5_000)] * (SHOWN_HEADERS + 3)
    api.operations.content = Record(b"k" * 5_000, "\u20ac".encode() * 2_000, headers, 1_000)
    told = get(api, f"{KEPT}/headers", token=SEES)
    assert (len(told["headers"]), told["more_headers"]) == (SHOWN_HEADERS, 3)
    assert len(told["headers"][0]["name"]) == 249
    for part in (told["key"], told["headers"][0]["value"]):
        assert (part["size_bytes"], len(part["shown"]), part["is_cut"]) == (5_000, SHOWN_HEADER_BYTES, True)
    value = get(api, f"{KEPT}/value", token=SEES)["value"]
    shown = "\u20ac" * (SHOWN_VALUE_BYTES // 3)
    assert value == {"form": "text", "size_bytes": 6_000, "shown": shown, "is_cut": True}


@pytest.mark.parametrize(
    ("content", "form", "shown"),
    [
        (b"", "text", ""),
        ("caf\u00e9\t\r\n".encode(), "text", "caf\u00e9\t\r\n"),
        (b"<script>", "text", "<script>"),
        (b"\xff\x00", "hex", "ff00"),
        (b"a\x1b[31m", "hex", "611b5b33316d"),
        ("a\u0085".encode(), "hex", "61c285"),
        (b" [1, 2] ", "json", " [1, 2] "),
        (b"[1, 2", "text", "[1, 2"),
        (b"[" * 4_000, "text", "[" * 4_000),
        (b"17", "text", "17"),
    ],
)
def test_a_part_is_text_where_it_is_text(content: bytes, form: str, shown: str) -> None:
    part = part_of(content, SHOWN_VALUE_BYTES)
    assert (part.form, part.shown, part.size_bytes, part.is_cut) == (form, shown, len(content), False)


def test_bytes_that_end_within_a_character_are_no_text() -> None:
    assert part_of("\u20ac".encode()[:2], 100).form == "hex"


def test_the_due_time_goes_along_and_what_is_gone_is_told(api: Api) -> None:
    get(api, f"{KEPT}/headers?due_ms=5")
    assert api.operations.asked_due_ms == 5
    get(api, f"{KEPT}/headers?due_ms=x", 422)
    get(api, "/topics/d/partitions/1/records/10/headers", 404)
    get(api, "/topics/d/partitions/9/records/1/headers", 404)
    get(api, "/topics/other/partitions/0/records/1/headers", 404)
    # The record of another delay topic in the same rejected topic.
    get(api, "/topics/d/rejected/partitions/0/records/1/headers", 404)
    get(api, "/topics/other/rejected/partitions/0/records/1/headers", 404)


def test_the_log_has_every_look_at_a_record_and_nothing_of_it(api: Api) -> None:
    with capture_logs() as logged:
        get(api, f"{KEPT}/headers", token=READ)
        get(api, f"{KEPT}/value", token=SEES)
        get(api, f"{REJECTED}/value", 403)
        get(api, "/topics/d/partitions/1/records/7")
    audited = [each for each in logged if each["event"] == "admin_request" and each["log_level"] == "info"]
    assert [(each["path"], each["status"]) for each in audited] == [
        (f"{PREFIX}{KEPT}/headers", 200),
        (f"{PREFIX}{KEPT}/value", 200),
        (f"{PREFIX}{REJECTED}/value", 403),
    ]
    assert "canary" not in str(logged)
