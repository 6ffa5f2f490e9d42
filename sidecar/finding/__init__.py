"""What is pending, record by record, in pages: for whoever looks, beside what releases.

May import: ``intake``, ``kafka``, ``config``. Begin with :mod:`sidecar.finding.walk`, which goes through one partition,
and :mod:`sidecar.finding.wanted`, what is looked for and where a page goes on. :mod:`sidecar.finding.finder` reads,
with consumers that :mod:`sidecar.finding.kept_readers` keeps. :mod:`sidecar.finding.known_ids` remembers which ids the
log has, :mod:`sidecar.finding.known_state` what the state was.

Decision: by what is stored, as a router would go by if it took the partition over now: state, segments, and the delay
topic from S on. So any router answers for the group, nothing is asked of the threads that release, and a page costs
what it reads: a bound on records and on seconds, after which the answer says where to go on.

A place in a partition names offsets and not buckets, so that it means the same after a seal, a merge or a take-over:
what was shown is not shown again, and what waits all the while is shown once.
"""
