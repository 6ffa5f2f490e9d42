"""OAUTHBEARER by librdkafka's own OIDC client: it needs only configuration and no polling, and keeps the secret."""

import base64
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from queue import Queue
from typing import ClassVar

import pytest

from sidecar.config.model import Config
from sidecar.config.reference import effective, render_effective
from sidecar.kafka.client.admin import connect
from tests.support.configuration import loaded

_WAIT_S = 10.0


class _TokenEndpoint(BaseHTTPRequestHandler):
    """Gives a token to every request, and remembers the requests: (credentials, body)."""

    asked: ClassVar[Queue[tuple[str, str]]] = Queue()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        kind, credentials = self.headers["Authorization"].split()
        assert kind == "Basic"
        self.asked.put((base64.b64decode(credentials).decode(), body))
        claims = {"sub": "router", "iat": int(time.time()), "exp": int(time.time()) + 3_600}
        token = ".".join([_part({"alg": "none"}), _part(claims), "signature"])
        answer = json.dumps({"access_token": token, "token_type": "Bearer", "expires_in": 3_600}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        """Be silent: the test judges the requests."""


def _part(claims: dict[str, object]) -> str:
    return base64.urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b"=").decode()


@pytest.fixture
def endpoint() -> Iterator[str]:
    """Run a token endpoint; yield its address."""
    with HTTPServer(("127.0.0.1", 0), _TokenEndpoint) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/token"
        server.shutdown()
        thread.join()


def _configured(folder: Path, endpoint: str) -> Config:
    secret = folder / "client-secret"
    secret.write_text("canary\n")
    text = f"""
[kafka]
"bootstrap.servers" = "127.0.0.1:1"
"security.protocol" = "SASL_SSL"
"sasl.mechanism" = "OAUTHBEARER"
"sasl.oauthbearer.method" = "oidc"
"sasl.oauthbearer.token.endpoint.url" = "{endpoint}"
"sasl.oauthbearer.client.id" = "router"
"sasl.oauthbearer.scope" = "kafka"
[router]
allow_sasl_plaintext = true
"""
    return loaded(folder, text, DELAY_ROUTER__KAFKA__SASL_OAUTHBEARER_CLIENT_SECRET_FILE=str(secret))


def test_a_client_fetches_its_token_by_itself(tmp_path: Path, endpoint: str) -> None:
    client = connect(_configured(tmp_path, endpoint))
    assert _TokenEndpoint.asked.get(timeout=_WAIT_S) == ("router:canary", "grant_type=client_credentials&scope=kafka")
    del client


def test_the_secret_is_not_shown(tmp_path: Path) -> None:
    config = _configured(tmp_path, "http://login.invalid/token")
    shown = effective(config)
    assert "canary" not in render_effective(config) + json.dumps(shown)
    assert config.kafka["sasl.oauthbearer.client.secret"] == "canary"
