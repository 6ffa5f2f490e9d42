"""The span of a release, as the SDK hands it to an exporter."""

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind

from sidecar import __version__
from sidecar.tracing.releases import Traced
from sidecar.tracing.spans import telling

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
SPAN = "00f067aa0ba902b7"
RELEASED = Traced(
    "orders.delay", 3, 7, "g", ("orders", "audit"), True, 5_000, 5_012, f"00-{TRACE}-{SPAN}-01", "vendor=1"
)


def spans_of(*released: Traced) -> tuple[ReadableSpan, ...]:
    exporter = InMemorySpanExporter()
    tracing = telling(SimpleSpanProcessor(exporter))
    for each in released:
        tracing._waiting.put_nowait(each)
    tracing.start()
    tracing.stop()
    return exporter.get_finished_spans()


def test_a_release_is_a_span_for_each_target_that_links_to_the_producers() -> None:
    first, second = spans_of(RELEASED)
    assert [first.name, second.name] == ["send orders", "send audit"]
    for span in (first, second):
        assert span.kind is SpanKind.PRODUCER
        assert span.parent is None
        (link,) = span.links
        assert (f"{link.context.trace_id:032x}", f"{link.context.span_id:016x}") == (TRACE, SPAN)
        assert link.context.trace_state.get("vendor") == "1"
        assert (span.start_time, span.end_time) == (5_000_000_000, 5_012_000_000)
    assert first.attributes == {
        "messaging.system": "kafka",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "orders",
        "messaging.consumer.group.name": "g",
        "messaging.kafka.message.tombstone": True,
        "delay_router.source": "orders.delay/3/7",
        "delay_router.late_ms": 12,
    }


def test_it_has_the_name_of_the_service_unless_the_environment_gives_another(monkeypatch: pytest.MonkeyPatch) -> None:
    (span,) = spans_of(RELEASED._replace(targets=("orders",)))
    assert span.resource.attributes == {"service.name": "kafka-delay-router", "service.version": __version__}
    monkeypatch.setenv("OTEL_SERVICE_NAME", "delays")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
    (span,) = spans_of(RELEASED._replace(targets=("orders",)))
    assert span.resource.attributes["service.name"] == "delays"
    assert span.resource.attributes["deployment.environment.name"] == "test"


@pytest.mark.parametrize(
    "wrong", [f"00-{'0' * 32}-{SPAN}-01", f"ff-{TRACE}-{SPAN}-01", f"00-{TRACE}-{'0' * 16}-01", "\xff" * 55]
)
def test_a_trace_that_cannot_be_is_none(wrong: str) -> None:
    assert spans_of(RELEASED._replace(traceparent=wrong)) == ()
