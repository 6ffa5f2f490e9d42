"""The listener of the admin API over real sockets: its own limits, TLS, and the settings it refuses to start with."""

import socket
import ssl
import subprocess
import threading
import time
import warnings
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import httpx
import pytest
from structlog.testing import capture_logs

from index.errors import ConfigError
from sidecar.http import server as http_server
from sidecar.http import tls
from sidecar.http.api.application import PREFIX
from sidecar.http.api.server import AdminApi
from tests.support.admin_api import READ, FakeOperations, HangingCall, bearer, config

TOPICS = f"{PREFIX}/topics"


class Running:
    """A server with doubles behind it."""

    def __init__(self, directory: Path, **admin: Any) -> None:
        self.file = directory / "tokens"
        self.file.write_text(f"read {READ}\n")
        made = config(listen="127.0.0.1:0", token_file=str(self.file), **admin)
        self.operations = FakeOperations(made)
        self.server = AdminApi(made, self.operations)

    def get(self, **options: Any) -> httpx.Response:
        scheme = "https" if "verify" in options else "http"
        url = f"{scheme}://localhost:{self.server.port}{TOPICS}"
        return httpx.get(url, headers=bearer(READ), timeout=10, trust_env=False, **options)

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.server.port), 10)


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    made = Running(tmp_path)
    yield made
    made.server.stop()


REQUEST = f"GET {TOPICS} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {READ}\r\n".encode()


def first_line(from_: socket.socket) -> bytes:
    return from_.recv(10_000).split(b"\r\n")[0]


def test_it_answers_and_tells_nothing_about_itself(running: Running) -> None:
    answer = running.get()
    assert answer.status_code == 200
    assert len(answer.json()["topics"]) == 2
    assert "server" not in answer.headers


def test_head_has_no_body(running: Running) -> None:
    with running.connect() as made:
        made.sendall(REQUEST.replace(b"GET", b"HEAD") + b"Connection: close\r\n\r\n")
        received = b"".join(iter(lambda: made.recv(10_000), b""))
    head, _, body = received.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200")
    assert body == b""


def test_a_connection_is_used_again(running: Running) -> None:
    made = HTTPConnection("localhost", running.server.port, timeout=10)
    ports = set()
    for _ in range(3):
        made.request("GET", TOPICS, headers=bearer(READ))
        answer = made.getresponse()
        assert (answer.status, answer.read()[:1]) == (200, b"{")
        ports.add(made.sock.getsockname()[1])
    made.close()
    assert len(ports) == 1


def test_requests_sent_ahead_are_answered_in_turn(running: Running) -> None:
    with running.connect() as made:
        made.sendall((REQUEST + b"\r\n") * 3)
        received = b""
        while received.count(b"HTTP/1.1 200 OK") < 3:
            piece = made.recv(10_000)
            assert piece, received
            received += piece


def test_headers_that_do_not_come_to_an_end(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "HEADERS_WITHIN_S", 1.0)
    with running.connect() as silent, running.connect() as slow, running.connect() as second:
        slow.sendall(b"GET /")
        second.sendall(REQUEST + b"\r\n")
        assert first_line(second) == b"HTTP/1.1 200 OK"
        # Each byte would renew a timer that began with the last byte.
        ended = _dripped(slow, b"x"), _dripped(second, REQUEST)
        assert ended == (True, True)
        assert silent.recv(100) == b""
    assert running.get().status_code == 200


def _dripped(made: socket.socket, data: bytes) -> bool:
    """Send a byte at a time until the other side closes the connection; say whether it did."""
    made.settimeout(0.05)
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            made.sendall(data[:1])
            data = data[1:] or data
            if made.recv(10_000) == b"":
                return True
        except TimeoutError:
            continue
        except OSError:
            return True
    return False


def test_a_body_that_does_not_come_to_an_end(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "ANSWERED_WITHIN_S", 0.3)
    with running.connect() as made:
        made.sendall(REQUEST + b"Content-Length: 1000\r\n\r\n")
        assert _dripped(made, b"x")
    assert running.get().status_code == 200


def test_an_answer_that_is_not_taken(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    # The answer is larger than the buffers of both sides.
    running.operations.partitions = 40_000
    large = running.operations.status()
    monkeypatch.setattr(running.operations, "status", lambda: large)
    monkeypatch.setattr(http_server, "ANSWERED_WITHIN_S", 3.0)
    with socket.socket() as made:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        made.connect(("127.0.0.1", running.server.port))
        made.sendall(REQUEST + b"\r\n")
        time.sleep(4)
        received = b"".join(iter(lambda: made.recv(1 << 20), b""))
    assert received.startswith(b"HTTP/1.1 200 OK")
    assert not received.endswith(b"0\r\n\r\n"), "it was taken after all"


def test_headers_beyond_the_limit(running: Running) -> None:
    with running.connect() as made:
        made.sendall(REQUEST + b"x: " + b"a" * 40_000)
        assert b"400" in first_line(made)


@pytest.mark.parametrize("first", [b"", b"GET /", REQUEST], ids=["idle", "half a line", "half a request"])
def test_who_holds_all_places_takes_them_from_himself(running: Running, first: bytes) -> None:
    held = []
    for _ in range(5 * http_server.PLACES.of_one_client):
        held.append(running.connect())
        held[-1].sendall(first)
    for _ in range(20):
        assert running.get().status_code == 200
    assert held[0].recv(100) == b"", "the oldest had to go"
    for each in held:
        each.close()


def test_a_call_that_hangs_does_not_hold_up_others_nor_the_end(running: Running) -> None:
    hanging = HangingCall()
    running.operations.before = hanging
    waiting = threading.Thread(target=lambda: _quietly(running))
    waiting.start()
    assert hanging.begun.wait(10)
    url = f"http://localhost:{running.server.port}{PREFIX}/policies"
    assert httpx.get(url, headers=bearer(READ), trust_env=False).status_code == 200
    running.server.stop()
    assert not hanging.ended.is_set()
    hanging.released.set()
    waiting.join(30)
    assert hanging.ended.wait(10)


def _quietly(running: Running) -> None:
    try:
        running.get()
    except httpx.HTTPError:
        return


def test_the_audit_log_names_the_connection_and_not_what_a_header_says(running: Running) -> None:
    with capture_logs() as logs:
        headers = {"x-forwarded-for": "203.0.113.9", "authorization": "Bearer none"}
        httpx.get(f"http://localhost:{running.server.port}{TOPICS}", headers=headers, trust_env=False)
        # The line is written once the answer is on its way.
        deadline = time.monotonic() + 10
        while not logs and time.monotonic() < deadline:
            time.sleep(0.01)
    (event,) = [each for each in logs if each["event"] == "admin_request"]
    assert (event["client"], event["status"]) == ("127.0.0.1", 401)


def certificate(directory: Path, name: str) -> tuple[Path, Path]:
    key, made = directory / f"{name}.key", directory / f"{name}.crt"
    call = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    call += ["-subj", f"/CN={name}", "-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(made)]
    subprocess.run(call, check=True, capture_output=True)
    return made, key


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Path]]:
    directory = tmp_path_factory.mktemp("certificates")
    return {name: certificate(directory, name) for name in ("one", "two", "client")}


def put(directory: Path, pair: tuple[Path, Path]) -> dict[str, str]:
    files = {"tls_cert_file": directory / "tls.crt", "tls_key_file": directory / "tls.key"}
    for file, source in zip(files.values(), pair, strict=True):
        file.write_bytes(source.read_bytes())
    return {key: str(file) for key, file in files.items()}


def trusting(pair: tuple[Path, Path]) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=pair[0])


def test_tls_and_a_new_certificate_without_a_restart(
    tmp_path: Path, certificates: dict[str, tuple[Path, Path]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls, "LOOK_EVERY_S", 0.0)
    one, two = certificates["one"], certificates["two"]
    running = Running(tmp_path, **put(tmp_path, one))
    try:
        assert running.get(verify=trusting(one)).status_code == 200
        with pytest.raises(httpx.ConnectError):
            running.get(verify=trusting(two))
        with capture_logs() as logs:
            (tmp_path / "tls.key").write_text("not a key")
            assert running.get(verify=trusting(one)).status_code == 200
            assert "admin_certificate_unusable" in {event["event"] for event in logs}
        put(tmp_path, two)
        assert running.get(verify=trusting(two)).status_code == 200
        # The client connects by address, so without a name in the handshake.
        by_address = trusting(two)
        by_address.check_hostname = False
        with running.connect() as plain, by_address.wrap_socket(plain) as made:
            made.sendall(REQUEST + b"\r\n")
            assert first_line(made) == b"HTTP/1.1 200 OK"
    finally:
        running.server.stop()


def test_old_tls_and_no_tls_are_refused(tmp_path: Path, certificates: dict[str, tuple[Path, Path]]) -> None:
    running = Running(tmp_path, **put(tmp_path, certificates["one"]))
    try:
        old = trusting(certificates["one"])
        # Otherwise the client itself would refuse old TLS.
        old.set_ciphers("DEFAULT:@SECLEVEL=0")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            old.minimum_version = ssl.TLSVersion.TLSv1
            old.maximum_version = ssl.TLSVersion.TLSv1_1
        with pytest.raises(httpx.HTTPError):
            running.get(verify=old)
        with pytest.raises(httpx.HTTPError):
            running.get()
        newest = trusting(certificates["one"])
        newest.maximum_version = ssl.TLSVersion.TLSv1_2
        assert running.get(verify=newest).status_code == 200
    finally:
        running.server.stop()


def test_handshakes_that_do_not_come_to_an_end(
    tmp_path: Path, certificates: dict[str, tuple[Path, Path]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "TLS_WITHIN_S", 0.3)
    running = Running(tmp_path, **put(tmp_path, certificates["one"]))
    try:
        with running.connect() as made:
            assert made.recv(100) == b""
    finally:
        running.server.stop()


def test_a_client_certificate_is_asked_for_besides_the_token(
    tmp_path: Path, certificates: dict[str, tuple[Path, Path]]
) -> None:
    one, client = certificates["one"], certificates["client"]
    running = Running(tmp_path, tls_client_ca_file=str(client[0]), **put(tmp_path, one))
    try:
        with pytest.raises(httpx.HTTPError):
            running.get(verify=trusting(one))
        stranger = trusting(one)
        stranger.load_cert_chain(*certificates["two"])
        with pytest.raises(httpx.HTTPError):
            running.get(verify=stranger)
        known = trusting(one)
        known.load_cert_chain(*client)
        assert running.get(verify=known).status_code == 200
        url = f"https://localhost:{running.server.port}{TOPICS}"
        assert httpx.get(url, verify=known, trust_env=False).status_code == 401
    finally:
        running.server.stop()


def test_changed_client_authorities_hold_from_the_next_connection_on(
    tmp_path: Path, certificates: dict[str, tuple[Path, Path]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls, "LOOK_EVERY_S", 0.0)
    one, client, stranger = certificates["one"], certificates["client"], certificates["two"]
    authorities = tmp_path / "authorities.pem"
    authorities.write_bytes(client[0].read_bytes())
    running = Running(tmp_path, tls_client_ca_file=str(authorities), **put(tmp_path, one))
    try:
        other = trusting(one)
        other.load_cert_chain(*stranger)
        with pytest.raises(httpx.HTTPError):
            running.get(verify=other)
        authorities.write_bytes(stranger[0].read_bytes())
        assert running.get(verify=other).status_code == 200
        known = trusting(one)
        known.load_cert_chain(*client)
        with pytest.raises(httpx.HTTPError):
            running.get(verify=known)
    finally:
        running.server.stop()


def test_what_it_does_not_start_with(tmp_path: Path, certificates: dict[str, tuple[Path, Path]]) -> None:
    one, two = certificates["one"], certificates["two"]
    for admin, told in (
        ({"tls_cert_file": str(one[0]), "tls_key_file": str(two[1])}, r"admin\.tls_cert_file: .* must fit"),
        ({"tls_cert_file": str(one[0]), "tls_key_file": str(tmp_path / "none")}, r"admin\.tls_key_file: .*No such"),
        ({"tls_cert_file": str(one[1]), "tls_key_file": str(one[1])}, r"admin\.tls_cert_file: .*must be PEM"),
        (
            {"tls_cert_file": str(one[0]), "tls_key_file": str(one[1]), "tls_client_ca_file": str(one[1])},
            r"admin\.tls_client_ca_file: ",
        ),
    ):
        with pytest.raises(ConfigError, match=told):
            Running(tmp_path, **admin)
    made = config(listen="127.0.0.1:0", token_file=str(one[0]))
    with pytest.raises(ConfigError, match=r"admin\.token_file: line 1"):
        AdminApi(made, FakeOperations(made))


def test_an_address_that_is_taken(running: Running) -> None:
    made = config(listen=f"127.0.0.1:{running.server.port}", token_file=str(running.file))
    with pytest.raises(ConfigError, match=r"admin\.listen: .*Address already in use"):
        AdminApi(made, FakeOperations(made))
