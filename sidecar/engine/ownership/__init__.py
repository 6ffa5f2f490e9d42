"""One owned delay partition: its take-over, the rounds that index and release, and the buckets of jobs that it adopts.

Begin with :mod:`sidecar.engine.ownership.serving`, the loop of a partition from one take-over to the next, then
:mod:`sidecar.engine.ownership.takeover`, :mod:`sidecar.engine.ownership.owned_partition` and
:mod:`sidecar.engine.ownership.rounds`. All of them reach Kafka only through :mod:`sidecar.engine.ownership.ports`;
:mod:`sidecar.process.host.worker` is the thread that runs them. :mod:`sidecar.engine.ownership.lanes` tells who may
write the state.
"""
