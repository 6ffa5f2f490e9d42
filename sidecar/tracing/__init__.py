"""Spans of OpenTelemetry for released records: when a record with a sampled ``traceparent`` has left, and how late.

A trace ends where its record is sent to a delay topic, and hours may pass before a consumer goes on with it. Each
release is a span of its own that links to the one of the producer: it begins when the record is due and ends when the
transaction is committed. The record itself goes out with the ``traceparent`` it came with, as all its headers do.

Nothing of it can stop or delay a release: a worker looks through what it has *committed*, up to a limit, and puts what
is traced into a bounded queue (:mod:`sidecar.tracing.releases`); a thread of the process makes spans of that. What does
not fit is dropped and told in the log. The extra ``tracing`` brings the SDK, and without ``router.tracing`` none of it
is loaded.

May import: ``payload`` and ``config``. Begin with :mod:`sidecar.tracing.releases`; :mod:`sidecar.tracing.spans` is all
that knows OpenTelemetry.
"""
