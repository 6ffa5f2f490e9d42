"""Probes and metrics over a real socket."""

import json
import socket
import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from typing import Self

import httpx
import pytest
from prometheus_client import CollectorRegistry, Counter
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from index.errors import ConfigError
from sidecar.http import listening, probes
from sidecar.http import server as http_server
from sidecar.http.listening import ConnectionLimits, client_of
from sidecar.http.pace import Rate
from sidecar.http.server import HttpServer
from sidecar.operations.asking import router_answers as status


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
def server(health: FakeHealth) -> Iterator[HttpServer]:
    running = probes.serve("127.0.0.1:0", health)
    yield running
    running.stop()


@pytest.fixture
def client(server: HttpServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"http://127.0.0.1:{server.port}", timeout=10, trust_env=False) as made:
        yield made


def test_livez(client: httpx.Client, health: FakeHealth) -> None:
    assert (client.get("/livez").status_code, client.get("/livez").json()) == (200, {"live": True})
    health.is_live = False
    assert client.get("/livez").status_code == 503


def test_readyz_says_which_partitions_are_not_ready_and_why(client: httpx.Client, health: FakeHealth) -> None:
    assert client.get("/readyz").status_code == 200
    health.body = {"ready": False, "partitions": {"orders.delay/0": {"state": "restoring", "why": "reading"}}}
    # The last answer is given again for no longer than this.
    time.sleep(probes.MAX_REST_S)
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


def test_a_client_that_names_many_versions_gets_one_answer(client: httpx.Client) -> None:
    accepted = [f"application/openmetrics-text; version=1.0.{number}" for number in range(3)]
    answers = [client.get("/metrics", headers={"accept": each}) for each in accepted]
    assert {each.headers["content-type"] for each in answers} == {
        client.get("/metrics", headers={"accept": "application/openmetrics-text"}).headers["content-type"]
    }


def test_the_first_page_names_the_paths(client: httpx.Client) -> None:
    answer = client.get("/")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/plain; charset=utf-8")
    named = [line.split()[0] for line in answer.text.splitlines() if line.startswith("/")]
    assert named == ["/livez", "/readyz", "/metrics"]
    assert {client.get(path).status_code for path in named} <= {200, 503}


@pytest.mark.parametrize("path", ["/metricz", "/metrics/", "/livez/x", "/admin", "/docs", "/readyz%2f"])
def test_unknown_paths_are_404(client: httpx.Client, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code == 404
    assert all(there in answer.text for there in ("/metrics", "/readyz", "[admin]")), "it leads somewhere"


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


def test_headers_beyond_the_limit_are_refused(server: HttpServer, client: httpx.Client) -> None:
    with socket.create_connection(("127.0.0.1", server.port), 10) as connection:
        connection.sendall(b"GET /livez HTTP/1.1\r\nx: " + b"a" * (4 * http_server.MAX_HEADER_BYTES))
        assert b"400" in connection.recv(1_000).split(b"\r\n")[0]
    assert client.get("/livez").status_code == 200


def test_a_request_that_never_ends_is_cut_off(health: FakeHealth, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "HEADERS_WITHIN_S", 0.3)
    server = probes.serve("127.0.0.1:0", health)
    try:
        with socket.create_connection(("127.0.0.1", server.port), 10) as connection:
            connection.sendall(b"GET /livez HTTP/1.1\r\n")
            assert connection.recv(100) == b""
    finally:
        server.stop()


class Crowd:
    """Connections of clients that send no complete requests, or too many; closed ones are opened again."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []
        self.opened = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join(10)

    def join(self, count: int, first: bytes, then: bytes = b"") -> None:
        """Open connections that send `first`, and then a piece of `then` twice a second."""
        connections = [self._connection(first) for _ in range(count)]
        thread = threading.Thread(target=self._go_on, args=(connections, first, then))
        thread.start()
        self._threads.append(thread)

    def _connection(self, first: bytes) -> socket.socket:
        made = socket.create_connection(("127.0.0.1", self._port), 10)
        made.sendall(first)
        self.opened += 1
        return made

    def _go_on(self, connections: list[socket.socket], first: bytes, then: bytes) -> None:
        while not self._stopping.wait(0.5):
            for place, each in enumerate(connections):
                try:
                    each.setblocking(False)
                    if then:
                        each.send(then)
                    elif each.recv(10_000) == b"":
                        raise ConnectionResetError
                except BlockingIOError:
                    continue
                except OSError:
                    each.close()
                    connections[place] = self._connection(first)
        for each in connections:
            each.close()


def _probed(port: int, path: str, times: int = 40) -> list[int]:
    """Return status codes of probes, each on its own connection, as an orchestrator asks."""
    return [httpx.get(f"http://127.0.0.1:{port}{path}", trust_env=False, timeout=60).status_code for _ in range(times)]


@pytest.mark.parametrize(
    ("first", "then"),
    [
        (b"", b""),
        (b"GET /livez HTT", b""),
        (b"GET /livez HTTP/1.1\r\nHost: x\r\n", b"x: y\r\n"),
        (b"GET /livez HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n", b"x"),
        (b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n" * 4, b""),
    ],
    ids=["idle", "half a request", "slow headers", "slow body", "many requests ahead"],
)
def test_probes_never_wait_for_clients(server: HttpServer, first: bytes, then: bytes) -> None:
    with Crowd(server.port) as crowd:
        # There are more connections than the server keeps for one client, and all of them and the probes are one
        # client.
        crowd.join(http_server.PLACES.of_one_client + 44, first, then)
        assert _probed(server.port, "/livez") == [200] * 40
        assert _probed(server.port, "/readyz", 10) == [200] * 10


def test_the_oldest_connection_goes_and_not_the_one_with_a_request_under_way(
    health: FakeHealth, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "PLACES", ConnectionLimits(connections=8, of_one_client=4))
    monkeypatch.setattr(listening, "IDLE_AFTER_S", 0.0)
    answering, asked = threading.Event(), threading.Event()

    class Slow(Collector):
        def collect(self) -> Iterator[Metric]:
            asked.set()
            answering.wait(10)
            return iter(())

    server = probes.serve("127.0.0.1:0", health)
    answering.set()
    health.registry.register(Slow())
    answering.clear()
    asked.clear()
    try:
        first = socket.create_connection(("127.0.0.1", server.port), 10)
        first.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        assert asked.wait(10)
        idle = [socket.create_connection(("127.0.0.1", server.port), 10) for _ in range(4)]
        assert idle[0].recv(100) == b""
        answering.set()
        assert first.recv(100).startswith(b"HTTP/1.1 200")
        idle[-1].sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
        assert idle[-1].recv(100).startswith(b"HTTP/1.1 200")
        for each in (first, *idle):
            each.close()
    finally:
        answering.set()
        server.stop()


def test_what_is_no_probe_has_a_rate(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes, "ANYBODY", Rate(per_s=0.1, burst=5.0))
    codes = [client.get("/metrics").status_code for _ in range(6)]
    assert codes == [200] * 5 + [429]
    refused = client.get("/nothing")
    assert refused.status_code == 429
    assert 5 <= int(refused.headers["retry-after"]) <= 10
    assert {client.get(path).status_code for path in ("/livez", "/readyz") for _ in range(20)} == {200}


def test_rendering_takes_a_tenth_of_a_core(client: httpx.Client, health: FakeHealth) -> None:
    rendered_s: list[float] = []

    class Costly(Collector):
        def collect(self) -> Iterator[Metric]:
            began_s = time.thread_time()
            while time.thread_time() - began_s < 0.05:
                pass
            rendered_s.append(time.monotonic())
            return iter(())

    health.registry.register(Costly())
    rendered_s.clear()
    began_s = time.monotonic()
    for _ in range(100):
        assert client.get("/metrics").status_code == 200
    assert len(rendered_s) <= 1 + (time.monotonic() - began_s) / (probes.REST_FACTOR * 0.05)
    assert all(later - earlier >= 8 * 0.05 for earlier, later in pairwise(rendered_s))


@pytest.mark.parametrize(
    ("address", "client"),
    [
        (("10.0.0.1", 1), "10.0.0.1"),
        (("::ffff:10.0.0.1", 1, 0, 0), "10.0.0.1"),
        (("2001:db8:1:2:3:4:5:6", 1, 0, 0), "2001:db8:1:2::/64"),
        (("2001:db8:1:2::1", 1, 0, 0), "2001:db8:1:2::/64"),
        (("fe80::1%eth0", 1, 0, 2), "fe80::/64"),
        (None, ""),
    ],
)
def test_client_of_an_address(address: tuple[object, ...] | None, client: str) -> None:
    assert client_of(address) == client


def test_port_in_use_is_a_clear_error(server: HttpServer, health: FakeHealth) -> None:
    with pytest.raises(ConfigError, match=rf"http\.listen: 127\.0\.0\.1:{server.port}: Address already in use"):
        probes.serve(f"127.0.0.1:{server.port}", health)


def test_address_that_is_not_ours_is_a_clear_error(health: FakeHealth) -> None:
    with pytest.raises(ConfigError, match=r"http\.listen: 203\.0\.113\.1:0: "):
        probes.serve("203.0.113.1:0", health)


def test_stopped_server_frees_its_port(health: FakeHealth) -> None:
    first = probes.serve("127.0.0.1:0", health)
    first.stop()
    second = probes.serve(f"127.0.0.1:{first.port}", health)
    second.stop()
    assert second.port == first.port


def test_status_reads_what_is_served_even_while_not_ready(server: HttpServer, health: FakeHealth) -> None:
    health.body = {"ready": False, "partitions": {"orders.delay/0": {"state": "restoring"}}}
    answer = status.ask(f"http://127.0.0.1:{server.port}")
    assert not answer.ready
    assert [(topic.topic, topic.released) for topic in answer.topics] == [("orders.delay", 3)]
    assert json.loads(json.dumps(answer.as_json()))["partitions"] == health.body["partitions"]
    assert answer.build == {}
