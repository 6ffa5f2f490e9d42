"""Makes spans by the semantic conventions for messaging, and exports them by OTLP over HTTP.

The variables of every OpenTelemetry SDK set destination and frequency: ``OTEL_EXPORTER_OTLP_ENDPOINT``,
``OTEL_SERVICE_NAME``, ``OTEL_RESOURCE_ATTRIBUTES``, ``OTEL_BSP_*``. This module sets no provider for the whole process,
so that libraries which make spans by themselves (as the one behind the admin API does) still make none.
"""

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import Link, SpanKind, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from sidecar import __version__
from sidecar.tracing.releases import ReleaseTracing, Traced

SERVICE = "kafka-delay-router"
NS_PER_MS = 1_000_000

_PROPAGATOR = TraceContextTextMapPropagator()


def exporting() -> ReleaseTracing:
    """Return a tracing that exports to a collector, from :meth:`ReleaseTracing.start` on."""
    return telling(BatchSpanProcessor(OTLPSpanExporter()))


def telling(processor: SpanProcessor) -> ReleaseTracing:
    """Return a tracing that passes its spans to a processor."""
    named = Resource({"service.name": SERVICE, "service.version": __version__})
    # The producer has decided about sampling already, and only sampled traces come here.
    provider = TracerProvider(ALWAYS_ON, named.merge(OTELResourceDetector().detect()), shutdown_on_exit=False)
    provider.add_span_processor(processor)
    tracer = provider.get_tracer("delay_router", __version__)
    return ReleaseTracing(lambda traced: span(tracer, traced), provider.shutdown)


def span(tracer: Tracer, traced: Traced) -> None:
    """Make a span for each target, from the due time of the record to its commit."""
    carrier = {"traceparent": traced.traceparent, "tracestate": traced.tracestate}
    sender = trace.get_current_span(_PROPAGATOR.extract(carrier)).get_span_context()
    if not sender.is_valid:
        return
    for target in traced.targets:
        attributes: dict[str, str | int | bool] = {
            "messaging.system": "kafka",
            "messaging.operation.name": "send",
            "messaging.operation.type": "send",
            "messaging.destination.name": target,
            "messaging.consumer.group.name": traced.group_id,
            "delay_router.source": f"{traced.topic}/{traced.partition}/{traced.offset}",
            "delay_router.late_ms": traced.released_ms - traced.began_ms,
        }
        if traced.is_tombstone:
            attributes["messaging.kafka.message.tombstone"] = True
        tracer.start_span(
            f"send {target}",
            kind=SpanKind.PRODUCER,
            attributes=attributes,
            links=[Link(sender)],
            start_time=traced.began_ms * NS_PER_MS,
        ).end(traced.released_ms * NS_PER_MS)
