"""Spans of OpenTelemetry for released records: they tell when a record with a sampled ``traceparent`` left.

A trace ends where its record is sent to a delay topic, and hours may pass before a consumer continues it. Each release
is a span of its own that links to the span of the producer: it begins at the due time of the record and ends with the
commit of the transaction, so its length is the lateness. The record keeps its ``traceparent``, as all its headers.

Tracing cannot stop or delay a release. A worker examines its *committed* records, up to a limit, and puts the traced
ones into a bounded queue (:mod:`sidecar.tracing.releases`); a thread of the process makes spans of them. Records that
do not fit are dropped, and the log says so. The extra ``tracing`` brings the SDK, which is loaded only with
``router.tracing``.

Begin with :mod:`sidecar.tracing.releases`; only :mod:`sidecar.tracing.spans` knows OpenTelemetry.
"""
