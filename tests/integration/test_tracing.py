"""Tests that a router with ``router.tracing`` sends spans of released records to a collector, and no others."""

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.integration.scenario import Stage, wait_until

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


@contextmanager
def collector() -> Iterator[tuple[str, list[Any]]]:
    """Run a collector. Yield its address and the spans that it receives."""
    spans: list[Any] = []

    class Taking(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            sent = ExportTraceServiceRequest.FromString(self.rfile.read(int(self.headers["content-length"])))
            spans.extend(span for of in sent.resource_spans for each in of.scope_spans for span in each.spans)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Keep the output quiet."""

    with HTTPServer(("127.0.0.1", 0), Taking) as server:
        serving = Thread(target=server.serve_forever)
        serving.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", spans
        finally:
            server.shutdown()
            serving.join()


def test_a_collector_hears_of_released_records_that_are_traced(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    with collector() as (endpoint, spans):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "none")
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
        out = stage.target()
        delay = stage.delay(default_target=out)
        traceparent = f"00-{TRACE}-00f067aa0ba902b7-01".encode()
        with stage.router(tracing=True) as router:
            router.start_and_wait()
            source = stage.send(delay, ("deliver-after", b"500ms"), ("traceparent", traceparent))
            stage.send(delay, ("traceparent", traceparent[:-1] + b"0"))
            stage.send(delay, ("deliver-at", b"soon"), ("traceparent", traceparent))
            sent = stage.wait_records(out, 2)
            assert ("traceparent", traceparent) in [*sent[0].headers, *sent[1].headers]
            wait_until(lambda: bool(spans), "a span")
            assert router.stop() == 0
    (span,) = spans
    assert span.name == f"send {out}"
    assert [link.trace_id.hex() for link in span.links] == [TRACE]
    assert source in [attribute.value.string_value for attribute in span.attributes]
