"""Tests of the image's sources, its list of components and its health check, without a container."""

import re
import sysconfig
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import confluent_kafka
import pytest

from helm.image import bundled, healthcheck, sbom
from tests.image import engine

_SITE_PACKAGES = Path(sysconfig.get_path("purelib"))


def test_what_the_image_is_built_from_is_let_into_its_context() -> None:
    let_in = (engine.ROOT / ".dockerignore").read_text().splitlines()
    texts = "".join((engine.ROOT / name).read_text() for name in engine.DOCKERFILES)
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", texts, re.MULTILINE)
    sources = {source for line in copied for source in line.split()} - {"build/wheel[s]"}
    assert sources == {"build/jars", *engine.COPIED, *engine.FILES, *engine.LOCKS} - {
        *engine.DOCKERFILES,
        ".dockerignore",
    }
    assert {f"!{source}" for source in sources} <= set(let_in)


def test_librdkafka_tells_what_it_carries() -> None:
    (library,) = _SITE_PACKAGES.glob("confluent_kafka.libs/librdkafka*")
    found = dict(bundled.in_librdkafka(library))
    assert found["librdkafka"] == confluent_kafka.libversion()[0]
    assert {"openssl", "zlib", "zstd", "lz4", "curl"} <= found.keys()
    assert found["openssl"].split(".") >= ["3"]


def test_a_library_without_symbols_is_an_error(tmp_path: Path) -> None:
    text = tmp_path / "librdkafka.so"
    text.write_text("not a library")
    with pytest.raises(ValueError, match="ELF"):
        bundled.in_librdkafka(text)
    with pytest.raises(ValueError, match="rd_kafka_version_str"):
        bundled.in_librdkafka(Path("/proc/self/exe").resolve())


def test_the_list_is_completed() -> None:
    names = ("confluent-kafka", "pydantic_core", "pyroaring")
    listed = [{"type": "library", "name": name, "version": "1", "bom-ref": f"{name}==1"} for name in names]
    # Other packages of this environment have their own lists, so all of them are named.
    others = (
        {name for name, _ in sbom.bundled(_SITE_PACKAGES)} - {name.replace("_", "-") for name in names} - set(names)
    )
    listed += [{"type": "library", "name": name, "version": "1", "bom-ref": f"{name}==1"} for name in others]
    completed: dict[str, Any] = sbom.complete({"components": listed}, _SITE_PACKAGES)
    below = {edge["ref"]: edge["dependsOn"] for edge in completed["dependencies"]}
    assert any(reference.startswith("confluent-kafka/openssl@") for reference in below["confluent-kafka==1"])
    assert any("serde_json" in reference for reference in below["pydantic_core==1"])
    assert below["pyroaring==1"]
    references = {component["bom-ref"] for component in completed["components"]}
    assert references >= {each for edges in below.values() for each in edges}


@pytest.mark.parametrize(
    ("listen", "url"),
    [
        ("127.0.0.1:8080", "http://127.0.0.1:8080/livez"),
        ("0.0.0.0:9", "http://127.0.0.1:9/livez"),
        ("[::]:80", "http://[::1]:80/livez"),
        ("router:80", "http://router:80/livez"),
    ],
)
def test_where_health_is_asked(listen: str, url: str) -> None:
    assert healthcheck.url(listen) == url


def test_where_the_router_listens(tmp_path: Path) -> None:
    file = tmp_path / "delay-router.toml"
    named = {"DELAY_ROUTER_CONFIG": str(file)}
    assert healthcheck.listens_at(named) == healthcheck.DEFAULT
    file.write_text('[http]\nlisten = "0.0.0.0:1"\n')
    assert healthcheck.listens_at(named) == "0.0.0.0:1"
    assert healthcheck.listens_at({**named, "DELAY_ROUTER__HTTP__LISTEN": "0.0.0.0:2"}) == "0.0.0.0:2"


def test_health_is_what_the_router_says(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    class Answer(BaseHTTPRequestHandler):
        status = 200

        def do_GET(self) -> None:
            self.send_response(self.status if self.path == "/livez" else 404)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("DELAY_ROUTER__HTTP__LISTEN", f"127.0.0.1:{server.server_port}")
        assert healthcheck.main() == 0
        Answer.status = 503
        assert healthcheck.main() == 1
        assert "503" in capsys.readouterr().err
        server.shutdown()
    assert healthcheck.main() == 1
