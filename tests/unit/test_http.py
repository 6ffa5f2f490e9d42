"""Probes and metrics over a real socket."""

import json
import socket
import time
from collections.abc import Iterator

import httpx
import pytest
from prometheus_client import CollectorRegistry, Counter

from index.errors import ConfigError
from sidecar import http, status


class FakeHealth:
    """A router whose state a test sets."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.is_live = True
        self.body: dict[str, object] = {"ready": True, "partitions": {}}
        counter = Counter("delay_router_records_released", "x", ["topic", "target"], registry=self.registry)
        counter.labels("orders.delay", "orders").inc(3)

    def live(self) -> tuple[bool, dict[str, object]]:
        return self.is_live, {"live": self.is_live}

    def ready(self) -> tuple[bool, dict[str, object]]:
        return self.body["ready"] is True, self.body


@pytest.fixture
def health() -> FakeHealth:
    return FakeHealth()


@pytest.fixture
def server(health: FakeHealth) -> Iterator[http.HttpServer]:
    running = http.serve("127.0.0.1:0", health)
    yield running
    running.stop()


@pytest.fixture
def client(server: http.HttpServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"http://127.0.0.1:{server.port}", timeout=10, trust_env=False) as made:
        yield made


def test_livez(client: httpx.Client, health: FakeHealth) -> None:
    assert (client.get("/livez").status_code, client.get("/livez").json()) == (200, {"live": True})
    health.is_live = False
    assert client.get("/livez").status_code == 503


def test_readyz_says_which_partitions_are_not_ready_and_why(client: httpx.Client, health: FakeHealth) -> None:
    assert client.get("/readyz").status_code == 200
    health.body = {"ready": False, "partitions": {"orders.delay/0": {"state": "restoring", "why": "reading"}}}
    answer = client.get("/readyz")
    assert answer.status_code == 503
    assert answer.headers["content-type"] == "application/json"
    assert answer.json() == health.body


def test_metrics_in_both_formats(client: httpx.Client) -> None:
    plain = client.get("/metrics")
    assert plain.headers["content-type"].startswith("text/plain")
    assert 'delay_router_records_released_total{target="orders",topic="orders.delay"} 3.0' in plain.text
    openmetrics = client.get("/metrics", headers={"accept": "application/openmetrics-text; version=1.0.0"})
    assert openmetrics.headers["content-type"].startswith("application/openmetrics-text")
    assert openmetrics.text.endswith("# EOF\n")


@pytest.mark.parametrize("path", ["/", "/metricz", "/metrics/", "/livez/x", "/admin", "/docs", "/readyz%2f"])
def test_unknown_paths_are_404(client: httpx.Client, path: str) -> None:
    assert client.get(path).status_code == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_only_get_and_head(client: httpx.Client, method: str) -> None:
    assert client.request(method, "/livez").status_code == 405
    head = client.head("/livez")
    assert (head.status_code, head.content) == (200, b"")


def test_nothing_about_the_server_is_told(client: httpx.Client) -> None:
    assert "server" not in client.get("/livez").headers


def test_health_that_fails_is_a_plain_500(
    client: httpx.Client, health: FakeHealth, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> tuple[bool, dict[str, object]]:
        raise RuntimeError("secret detail")

    monkeypatch.setattr(health, "live", broken)
    answer = client.get("/livez")
    assert answer.status_code == 500
    assert "secret" not in answer.text


def test_headers_beyond_the_limit_are_refused(server: http.HttpServer, client: httpx.Client) -> None:
    with socket.create_connection(("127.0.0.1", server.port), 10) as connection:
        connection.sendall(b"GET /livez HTTP/1.1\r\nx: " + b"a" * (4 * http.MAX_REQUEST_BYTES))
        assert b"400" in connection.recv(1_000).split(b"\r\n")[0]
    assert client.get("/livez").status_code == 200


def test_a_request_that_never_ends_is_cut_off(health: FakeHealth, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "CONNECTION_LIFETIME_S", 0.3)
    server = http.serve("127.0.0.1:0", health)
    try:
        with socket.create_connection(("127.0.0.1", server.port), 10) as connection:
            connection.sendall(b"GET /livez HTTP/1.1\r\n")
            assert connection.recv(100) == b""
    finally:
        server.stop()


def test_connections_beyond_the_limit_get_503(server: http.HttpServer) -> None:
    idle = [socket.create_connection(("127.0.0.1", server.port), 10) for _ in range(http.MAX_CONNECTIONS)]
    try:
        deadline = time.monotonic() + 10
        code = 0
        while code != 503 and time.monotonic() < deadline:
            code = httpx.get(f"http://127.0.0.1:{server.port}/livez", trust_env=False).status_code
        assert code == 503
    finally:
        for connection in idle:
            connection.close()


def test_port_in_use_is_a_clear_error(server: http.HttpServer, health: FakeHealth) -> None:
    with pytest.raises(ConfigError, match=rf"http\.listen: 127\.0\.0\.1:{server.port}: Address already in use"):
        http.serve(f"127.0.0.1:{server.port}", health)


def test_address_that_is_not_ours_is_a_clear_error(health: FakeHealth) -> None:
    with pytest.raises(ConfigError, match=r"http\.listen: 203\.0\.113\.1:0: "):
        http.serve("203.0.113.1:0", health)


def test_stopped_server_frees_its_port(health: FakeHealth) -> None:
    first = http.serve("127.0.0.1:0", health)
    first.stop()
    second = http.serve(f"127.0.0.1:{first.port}", health)
    second.stop()
    assert second.port == first.port


def test_status_reads_what_is_served_even_while_not_ready(server: http.HttpServer, health: FakeHealth) -> None:
    health.body = {"ready": False, "partitions": {"orders.delay/0": {"state": "restoring"}}}
    answer = status.ask(f"http://127.0.0.1:{server.port}")
    assert not answer.ready
    assert [(topic.topic, topic.released) for topic in answer.topics] == [("orders.delay", 3)]
    assert json.loads(json.dumps(answer.as_json()))["partitions"] == health.body["partitions"]
