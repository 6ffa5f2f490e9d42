"""Rejected records: lists them, and drives them again, which copies them back to their delay topic exactly once.

Begin with :mod:`sidecar.operations.rejected.redriving`; :mod:`sidecar.operations.rejected.records` describes the
records of a rejected topic and :mod:`sidecar.operations.rejected.log` reads them.
:mod:`sidecar.operations.rejected.listing` and :mod:`sidecar.operations.rejected.counting` show them.

Exactly once
------------
One transaction holds the copies and, for each partition of the rejected topic, a *mark*: a record without key and
value whose only header names the offsets that were driven (``delay-redriven-offsets: 17,20-44``). A run begins by
fencing the run before it through its ``transactional.id``, which aborts a transaction that the old run has left open.
Then it waits until no open transaction hides a record of the rejected topic, reads all marks, and leaves out the
records that they name. So a run that is killed has driven the records of its commits, and the next run drives the rest.
Two runs at once are safe, since only the later one can commit. A record that is not selected has no mark and waits for
another selection.

A mark lies behind the records it names, in the same log: retention removes it later than them, and a topic that is
deleted and created again has no marks. No producer can make a router write a mark: a router ends every record that it
rejects with three headers of its own, and a mark has one header in all.

Rejected
--------
* *The committed offset of a reader* would also pass the records that were not selected. Their offsets in the metadata
  beside it (4 KB at most) would be lost once the brokers forget a group without members (7 days).
* *A topic of its own* for the driven offsets would outlive the rejected topic, and its offsets would then name other
  records. It needs the topic's id in each key to tell, and is one more topic to create, check and grant.
* *A tombstone, or DeleteRecords*: the rejected topic is not compacted, and only the oldest records of a log can be
  deleted.
* *The state topic*: routers read it at every take-over, and driven records do not concern them.
* *The original timestamp*: a rejected record does not have it. So ``deliver-after`` counts from the time of driving.
"""
