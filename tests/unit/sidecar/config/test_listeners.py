"""``[admin]``: its keys, and the values that are refused before anything listens."""

from pathlib import Path
from typing import Any

import pytest

from index.errors import ConfigError
from sidecar.config.listeners import is_loopback
from sidecar.config.model import Config, load
from sidecar.config.reference import effective, render_effective, render_reference
from tests.support.configuration import MINIMAL, loaded, refused


def with_admin(**keys: Any) -> str:
    lines = [f"{key} = {str(value).lower() if isinstance(value, bool) else repr(value)}" for key, value in keys.items()]
    return MINIMAL + "\n[admin]\n" + "\n".join(lines) + "\n"


def test_off_by_default_and_on_loopback(tmp_path: Path) -> None:
    admin = loaded(tmp_path, MINIMAL).admin
    assert (admin.is_on, admin.listen, admin.host, admin.port) == (False, "127.0.0.1:8081", "127.0.0.1", 8081)
    assert loaded(tmp_path, with_admin(token_file="/etc/tokens")).admin.is_on
    assert not loaded(tmp_path, with_admin(token_file="/etc/tokens")).admin.page
    assert loaded(tmp_path, MINIMAL, DELAY_ROUTER__ADMIN__TOKEN_FILE="/etc/tokens").admin.is_on
    by_environment = loaded(tmp_path, MINIMAL, DELAY_ROUTER__ADMIN__ALLOWED_HOSTS="Router.example, 192.0.2.1")
    assert by_environment.admin.allowed_hosts == ("router.example", "192.0.2.1")


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({"token": "x" * 40}, "admin.token: unknown key; did you mean 'token_file'?"),
        ({"listen": "8081"}, "admin.listen: an address is written HOST:PORT"),
        (
            {"listen": "0.0.0.0:1", "token_file": "t"},
            "admin.listen: 0.0.0.0:1 is not loopback, and tokens",
        ),
        ({"listen": "[::]:1", "token_file": "t"}, "is not loopback"),
        ({"listen": "router:1", "token_file": "t"}, "is not loopback"),
        ({"tls_cert_file": "c"}, "admin.tls_key_file: required with tls_cert_file"),
        ({"tls_key_file": "k"}, "admin.tls_cert_file: required with tls_key_file"),
        ({"tls_client_ca_file": "c"}, "admin.tls_client_ca_file: has no effect without"),
        (
            {"allowed_hosts": ["router:8081"]},
            "admin.allowed_hosts[0]: 'router:8081' is not the name",
        ),
        ({"allowed_hosts": ["*"]}, "is not the name or address of a host"),
        ({"topic_link": "https://c.example/{topic}"}, "admin.topic_link: has no effect without page"),
        *(
            ({"topic_link": link}, "is no address of http or https with {topic}")
            for link in (
                "javascript:alert('{topic}')",
                "https://c.example/",
                "https://c.example/{topic}/{offset}",
                "https://c.example/{topic}/{name}",
                "https://c.example/{topic",
                "https://c.example/{topic} x",
            )
        ),
        ({"record_link": "ftp://c.example/{topic}"}, "in braces: {offset}, {partition}, {topic}"),
        ({"page": True}, "admin.page: has no effect without token_file"),
        ({"masked_headers": ["x-[ab]"]}, "'x-[ab]' is no name of a header; * stands for any text"),
        ({"masked_headers": [""]}, "'' is no name of a header"),
    ],
)
def test_refused(tmp_path: Path, keys: dict[str, Any], told: str) -> None:
    assert told in refused(tmp_path, with_admin(**keys))


@pytest.mark.parametrize(
    "keys",
    [
        {"listen": "0.0.0.0:1", "token_file": "t", "allow_plaintext": True},
        {
            "listen": "0.0.0.0:1",
            "token_file": "t",
            "tls_cert_file": "c",
            "tls_key_file": "k",
            "tls_client_ca_file": "a",
        },
        {"listen": "0.0.0.0:1"},
        {"listen": "[::1]:1", "token_file": "t"},
        {"listen": "localhost:1", "token_file": "t"},
        {"token_file": "t", "page": True},
        {
            "token_file": "t",
            "page": True,
            "topic_link": "http://localhost:8080/ui/topics/{topic}",
            "record_link": "https://c.example/topics/{topic}?p={partition}&o={offset}#{topic}",
        },
        {"masked_headers": ["*Token*", "x-?"]},
        {"masked_headers": []},
        {"allowed_hosts": ["router.example", "fd00::1", "192.0.2.1"]},
    ],
)
def test_accepted(tmp_path: Path, keys: dict[str, Any]) -> None:
    made = loaded(tmp_path, with_admin(**keys))
    file = tmp_path / "again.toml"
    file.write_text(render_effective(made))
    assert load(file, {}).admin == made.admin


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("LocalHost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("localhost.example", False),
        ("10.0.0.1", False),
    ],
)
def test_loopback(host: str, expected: bool) -> None:
    assert is_loopback(host) == expected


def test_it_is_shown_and_explained() -> None:
    made = Config.model_validate({"kafka": {"bootstrap.servers": "x:1"}})
    shown = effective(made)["admin"]
    assert isinstance(shown, dict)
    assert shown["token_file"] == ""
    assert "## `[admin]`" in render_reference()


def test_problems_of_several_sections_are_told_together(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, with_admin(listen="x") + '[router]\ntik = "1"\n')
    assert len(str(caught.value).splitlines()) == 2
