"""Lists pending schedules one by one, in pages, beside the threads that release.

Begin with :mod:`sidecar.operations.finding.walk`, which goes through one partition.
:mod:`sidecar.operations.finding.wanted` has the values of a question and of a page,
:mod:`sidecar.operations.finding.store` reads Kafka, :mod:`sidecar.operations.finding.cache` keeps parts from one page
to the next, and :mod:`sidecar.operations.finding.finder` connects them.

Decision: a page shows the stored partition, as a router that takes it over now would see it: state, segments, and the
delay topic from S on. So any router answers for the group, and the threads that release are not asked. A page costs
the records that it reads. It is bounded in records and in seconds, and tells where the next page goes on.

A place in a partition names offsets and not buckets, so that it means the same after a seal, a merge or a take-over:
no schedule is shown twice, and a schedule that is pending all the while is shown once.
"""
