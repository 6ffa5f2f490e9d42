"""The token file: its allowed contents, and the effect of a new file."""

import hmac
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from index.errors import ConfigError
from sidecar.http import tokens
from sidecar.http.tokens import Role, TokenFile
from tests.support.admin_api import OPERATE, PRODUCE, READ, SEES


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "tokens"
    made.write_text(f"# who reads\n  read {READ}  \n\noperate\t{OPERATE}=\nproduce {PRODUCE}\n".replace("\t", " "))
    return made


def test_what_is_in_records_is_for_who_is_said_to_see_it(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text(f"read {READ}\nread+payload {SEES}\noperate+payload {OPERATE}\n")
    found = [TokenFile(file).caller(token.encode()) for token in (READ, SEES, OPERATE)]
    assert [each and (each.role, each.sees_payload) for each in found] == [
        (Role.READ, False),
        (Role.READ, True),
        (Role.OPERATE, True),
    ]


def test_roles(file: Path) -> None:
    found = TokenFile(file)
    reader, operator = found.caller(READ.encode()), found.caller(f"{OPERATE}=".encode())
    producer = found.caller(PRODUCE.encode())
    assert reader is not None
    assert operator is not None
    assert producer is not None
    assert [reader.may(role) for role in Role] == [True, False, False]
    assert [operator.may(role) for role in Role] == [True, True, False]
    assert [producer.may(role) for role in Role] == [False, False, True]
    assert len(reader.name) == 8
    assert reader.name not in READ


@pytest.mark.parametrize(
    "presented", [b"", b"x", READ.encode()[:-1], READ.encode() + b"x", READ.upper().encode(), b"\xff"]
)
def test_what_is_no_token(file: Path, presented: bytes) -> None:
    assert TokenFile(file).caller(presented) is None


def test_all_tokens_are_compared_whichever_it_is(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[bytes] = []
    compare = hmac.compare_digest

    def counting(one: bytes, other: bytes) -> bool:
        compared.append(other)
        return compare(one, other)

    monkeypatch.setattr(hmac, "compare_digest", counting)
    found = TokenFile(file)
    for presented in (READ, f"{OPERATE}=", PRODUCE, "neither"):
        compared.clear()
        found.caller(presented.encode())
        assert len(set(compared)) == 3, presented


SECRET = "s3cret-that-must-never-be-shown"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no token is in it"),
        ("# only this\n", "no token is in it"),
        (f"read {READ}\nread {SECRET}\n", "line 2: the token has 31 characters and needs 32; make one"),
        (f"write {SECRET}0123456789\n", "line 1: write `read TOKEN`, `operate TOKEN` or `produce TOKEN`"),
        (f"{SECRET}0123456789\n", "line 1: write `read TOKEN`"),
        ("operate\n", "line 1: write `read TOKEN`"),
        (f"payload {SECRET}0123456789\n", "line 1: write `read TOKEN`"),
        (f"read+payload+payload {SECRET}0123456789\n", "line 1: write `read TOKEN`"),
        (f"produce+payload {SECRET}0123456789\n", "line 1: produce reads nothing"),
        (f"operate {SECRET} {SECRET}\n", "line 1: a token is of letters"),
        (f"operate {SECRET}é{SECRET}\n", "line 1: a token is of letters"),
        (f"operate {READ}\nread {READ}\n", "line 2: this token is there already"),
    ],
)
def test_refused_naming_the_line_and_never_the_token(tmp_path: Path, text: str, why: str) -> None:
    file = tmp_path / "tokens"
    file.write_text(text)
    with pytest.raises(ConfigError, match=why) as caught:
        TokenFile(file)
    assert SECRET not in str(caught.value)
    assert READ not in str(caught.value)


def test_a_file_that_is_not_there_or_not_text(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"admin\.token_file: .*none cannot be read: No such file"):
        TokenFile(tmp_path / "none")
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        TokenFile(tmp_path)
    (tmp_path / "raw").write_bytes(b"read \xff\xfe")
    with pytest.raises(ConfigError, match="not text in UTF-8"):
        TokenFile(tmp_path / "raw")
    (tmp_path / "large").write_bytes(b"#" * (tokens.MAX_FILE_BYTES + 1))
    with pytest.raises(ConfigError, match="is it another file"):
        TokenFile(tmp_path / "large")


def test_rotation_needs_no_restart(file: Path) -> None:
    clock = Clock()
    found = TokenFile(file, clock)
    new = "a-new-one-0123456789abcdef0123456789"
    file.write_text(f"read {new}\n")
    assert found.caller(READ.encode()), "not looked at again within the second"
    clock.now_s += tokens.LOOK_EVERY_S
    with capture_logs() as logs:
        assert found.caller(READ.encode()) is None
        assert found.caller(new.encode()) is not None
    assert [(event["event"], event["tokens"]) for event in logs] == [("admin_tokens_changed", 1)]


@pytest.mark.parametrize("text", [None, "", f"read {SECRET}\n"])
def test_a_new_file_that_cannot_be_used_changes_nothing_and_is_told_once(file: Path, text: str | None) -> None:
    clock = Clock()
    found = TokenFile(file, clock)
    if text is None:
        file.unlink()
    else:
        file.write_text(text)
    with capture_logs() as logs:
        for _ in range(3):
            clock.now_s += tokens.LOOK_EVERY_S
            assert found.caller(READ.encode()) is not None
    assert [event["event"] for event in logs] == ["admin_tokens_unusable"]
    assert SECRET not in repr(logs)
    file.write_text(f"read {READ}x\n")
    clock.now_s += tokens.LOOK_EVERY_S
    assert found.caller(READ.encode()) is None
