"""Rejected records once more: listed, and driven again, which copies them back into their delay topic exactly once.

May import: ``release``, ``intake``, ``kafka``, ``config``. Begin with :mod:`sidecar.rejected.redriving`;
:mod:`sidecar.rejected.records` says what a rejected record is, :mod:`sidecar.rejected.log` how the topic is read.
:mod:`sidecar.rejected.listing` and :mod:`sidecar.rejected.counting` show what lies in it.

Exactly once
------------
One transaction holds the copies and, for each partition of the rejected topic, a *mark*: a record without key and
value whose only header names the offsets that were driven (``delay-redriven-offsets: 17,20-44``). A run begins by
fencing the one before it, by its ``transactional.id``, which ends what that one has left open. Then it waits until no
open transaction hides anything of what the rejected topic holds by then, reads all marks, and leaves out what they
name. So a run that is killed has driven what its last commit says, the next one goes on behind that, and of two at once
only the later can commit. What is not selected has no mark and waits for another selection.

A mark lies behind the records it names, in the same log: whatever removes the old of a log removes it later than them,
and a topic that is deleted and made anew has none. Nobody can have one written: a router ends every record that it
rejects with three headers of its own, and a mark has one header in all.

Rejected
--------
* *The committed offset of a reader* cannot leave anything out: it passes what was not selected. With offsets in the
  metadata beside it (4 KB at most) it would say so, until the brokers forget a group without members (7 days).
* *A topic of its own* for what was driven would outlive the rejected topic, and its offsets would then name others; to
  tell it needs the topic's id in each key, and one more topic to create, check and grant.
* *A tombstone, or DeleteRecords*: the rejected topic is not compacted, and only the oldest of a log can be deleted.
* *The state topic* is read by routers at every take-over, and none of this concerns them.
* *The original timestamp*: a rejected record does not have it. So ``deliver-after`` counts from when it was driven.
"""
