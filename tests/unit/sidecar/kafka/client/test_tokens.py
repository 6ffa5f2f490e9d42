"""Tokens for Amazon MSK with IAM: signed without a network, requested by librdkafka itself, shared by all clients."""

import base64
import sys
from pathlib import Path
from urllib.parse import parse_qs, urlparse

import pytest
from confluent_kafka import KafkaError, KafkaException

from index.errors import ConfigError
from sidecar.config.model import Config
from sidecar.kafka.client import clients, tokens
from sidecar.kafka.client.admin import connect
from sidecar.kafka.client.errors import error_of
from sidecar.kafka.client.tokens import FRESH_S, LIFE_S, Tokens, connection
from tests.support.configuration import loaded

CONFIGURED = """
[kafka]
"bootstrap.servers" = "127.0.0.1:1"
"security.protocol" = "SASL_SSL"
"sasl.mechanism" = "OAUTHBEARER"
[router]
msk_region = "eu-central-1"
"""


@pytest.fixture(autouse=True)
def no_credentials_of_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Hide the files and the instance service of this machine."""
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, str(tmp_path / name))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    tokens._tokens.cache_clear()


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return loaded(tmp_path, CONFIGURED)


@pytest.fixture
def with_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "canary")


@pytest.mark.usefixtures("with_credentials")
def test_a_token_is_a_signed_address_of_the_region(config: Config) -> None:
    token, ends_s = connection(config)["oauth_cb"]("")
    address = urlparse(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode())
    assert address.netloc.startswith("kafka.eu-central-1.")
    asked = parse_qs(address.query)
    assert asked["Action"] == ["kafka-cluster:Connect"]
    assert asked["X-Amz-Credential"][0].startswith("AKIDEXAMPLE/")
    assert "canary" not in address.query
    assert ends_s > FRESH_S


@pytest.mark.usefixtures("with_credentials")
def test_clients_of_every_kind_ask_for_it_when_they_are_made(config: Config) -> None:
    asked: list[str] = []
    real = tokens._tokens("eu-central-1")

    class Watched(Tokens):
        def __call__(self, text: str) -> tuple[str, float]:
            asked.append(text)
            return real(text)

    tokens._tokens.cache_clear()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(tokens, "_tokens", lambda _: Watched(lambda: ("", 0)))
        made = [connect(config), clients.reader(config), clients.producer(config, "d.0")]
    assert len(made) == 3
    # A token is requested once before each client is made, and once by librdkafka, which needs it to start.
    assert len(asked) >= 2 * len(made)


def test_without_credentials_it_says_so_at_once(config: Config) -> None:
    with pytest.raises(KafkaException, match="finds no credentials") as raised:
        clients.reader(config)
    assert error_of(raised.value).code() == KafkaError._AUTHENTICATION
    with pytest.raises(ConfigError, match=r"router\.msk_region: no token can be signed"):
        connect(config)


def test_without_the_extra_it_says_what_to_install(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "sidecar.kafka.client.msk", raising=False)
    monkeypatch.setitem(sys.modules, "aws_msk_iam_sasl_signer", None)
    with pytest.raises(ConfigError, match=r"uv tool install --force '\.\[msk\]'"):
        connection(config)


def test_one_token_serves_all_until_half_of_its_time_is_over() -> None:
    now_s, signed = 1_000.0, 0

    def sign() -> tuple[str, int]:
        nonlocal signed
        signed += 1
        return f"token {signed}", int((now_s + 2 * FRESH_S) * 1_000)

    shared = Tokens(sign, lambda: now_s)
    assert shared("") == shared("") == ("token 1", now_s + 2 * FRESH_S)
    # librdkafka asks again at 80 % of the remaining time, and gets another token.
    now_s += FRESH_S
    assert shared("")[0] == "token 1"
    now_s += 0.8 * FRESH_S
    assert shared("")[0] == "token 2"


def test_a_token_that_was_signed_in_the_future_is_signed_anew() -> None:
    now_s, signed = 10_000.0, 0

    def sign() -> tuple[str, int]:
        nonlocal signed
        signed += 1
        return f"token {signed}", int((now_s + LIFE_S) * 1_000)

    shared = Tokens(sign, lambda: now_s)
    assert shared("")[0] == "token 1"
    # The clock was an hour ahead, and is set back.
    now_s -= 3_600
    assert shared("") == shared("") == ("token 2", now_s + LIFE_S)
    # A clock that is set back by less than the time since the signing still reads later than the signing.
    now_s += 100
    assert shared("")[0] == "token 2"
    now_s -= 99
    assert shared("")[0] == "token 2"
    now_s -= 2
    assert shared("")[0] == "token 3"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('"security.protocol" = "SASL_PLAINTEXT"', 'needs "SASL_SSL"'),
        ('"sasl.mechanism" = "SCRAM-SHA-512"', 'needs "OAUTHBEARER"'),
        ('"sasl.oauthbearer.method" = "oidc"', "remove this key"),
    ],
)
def test_what_would_not_use_the_token_is_refused(tmp_path: Path, line: str, said: str) -> None:
    key = line.split(" = ", maxsplit=1)[0]
    kept = [each for each in CONFIGURED.splitlines() if not each.startswith(key)]
    text = "\n".join(kept).replace("[kafka]", f"[kafka]\n{line}")
    with pytest.raises(ConfigError, match=said):
        loaded(tmp_path, text)


@pytest.mark.parametrize("region", ["Europe", "eu-central-1.evil.example/", "eu-central"])
def test_a_region_is_a_region(tmp_path: Path, region: str) -> None:
    with pytest.raises(ConfigError, match=r"router\.msk_region"):
        loaded(tmp_path, CONFIGURED.replace("eu-central-1", region))
