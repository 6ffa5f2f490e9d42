"""The pure core of the router: decides records, keeps the pending ones, and says which leave next.

Theory of operation
-------------------
A delay partition is a log. In offset order :mod:`index.rules.rules` decides each record from its headers, its timestamp
and the configured rules: *accepted* with a due time and targets, or *rejected* with a reason. The decision never looks
at a clock, because the next owner of the partition reads a part of the log again and must decide the same.

:mod:`index.partition.partition` keeps the pending records, sorted by (due, offset), and says which leave next. Two
numbers tell everything about the past: the *cursor* C (every record below it has been indexed) and the *watermark* W
(every pending entry at or before it has been released). See :mod:`index.pending.progress`.

* offset below C and (due, offset) at or before W: done.
* offset below C and (due, offset) after W: pending.
* offset at or beyond C: not looked at yet.

One transaction writes the records that leave, C and W, so both numbers stay true through any crash. The state has no
note for each released record, and the router compares no record with earlier ones.

Pending entries do not all stay in memory. :mod:`index.partition.pending_set` holds the newest entries and those due
soon. The other entries lie in immutable *buckets* (:mod:`index.buckets.bucket`, after PIP-195). The owner seals
buckets, cuts them into segments, and merges them when they are many (:mod:`index.buckets.bucket_rules`). S, at most C,
is the offset below which every entry is in a bucket or done. W never passes an entry that is not in memory. The index
drops an entry that is loaded twice: it knows the offset of the entry, or the entry lies at or before W.

The owner rejects a batch that cannot be read as one range. A replay accepts no record of this range, even if the batch
is readable then: readability does not replay as a decision does (:mod:`index.pending.skipped`).

A Spark job may also build a bucket, which the owner *adopts* (:mod:`index.partition.adopting`). Until such a bucket has
caught up with W it has a watermark of its own.

The life of a record, with a word as its payload; at the end only the two numbers remain:

>>> from index.partition.partition import PartitionIndex
>>> from index.pending.progress import start_of
>>> from index.rules.rules import Rules
>>> rules = Rules(topic="orders.delay", default_target="orders")
>>> schedule = rules.decide([("deliver-after", b"PT15M")], timestamp_ms=1_000_000)
>>> schedule.due_ms, schedule.targets
(1900000, ('orders',))
>>> partition = PartitionIndex(start_of(7), size_of=len)
>>> partition.add([(schedule.due_ms, 7, "coffee")])
[(1900000, 7, 'coffee')]
>>> partition.next_due_ms()
1900000
>>> batch = partition.plan(now_ms=1_900_000, max_entries=100, max_bytes=1_000)
>>> batch.due
[(1900000, 7, 'coffee')]
>>> partition.confirm()
>>> partition.committed.cursor, partition.committed.watermark
(8, Position(due_ms=1900000, offset=7))
>>> partition.committed.is_done(1_900_000, 7)
True

Rooms
-----
=============  ========================================================================================
``protocol``   headers, and the decision about a record
``rules``      turn a record into a schedule, a control or a rejection
``pending``    entries in memory; cursor and watermark
``named``      schedules with an id: controls, receipts, cancelled offsets
``buckets``    sealed entries in segments; when to seal and merge
``partition``  the index of one delay partition as a whole
=============  ========================================================================================

Glossary
--------
Each word has one meaning in code, errors, logs and documents.

=================  =====================================================================================
delay topic        the topic that producers write to; its partitions are *delay partitions*
target topic       the topic that a record is released to
record             a record of Kafka: key, value, headers, timestamp
schedule           the decision about an accepted record: due time, targets, id, expiry, recurrence
due time           the time from which a record may be released (``due_ms``, epoch milliseconds)
reject             write a record to the rejected topic, with a reason
release            write a due record to its targets
pending            accepted, and not yet released, rejected, cancelled or moved
entry              a pending record in the index: (due, offset, payload)
cursor, C          the offset below which every record has been indexed
watermark, W       the (due, offset) up to which every pending entry has been released
sealed to, S       the offset below which every entry is in a bucket or done
state topic        the compacted topic with C, W and S of each partition, manifests and rules
rules              the configured values that decide a record
rule epoch         the offsets that were indexed under the same rules
bucket             an immutable set of pending entries, sorted by (due, offset)
segment            a part of a bucket; one record of the snapshots topic
manifest           the description of a bucket and its segments, in the state topic
seal               write the oldest pending entries into a bucket
merge              write several buckets into one
load               read a segment back into memory shortly before it is due
trim               delete records of the delay and snapshots topics that nobody needs
owner              the router that serves a partition; only one can commit for it
take-over          the steps of a new owner: fence, read the state, index [S, C) again
round              one turn of an owner: index the records that arrived, release the records that are due
transaction        a Kafka transaction: released and rejected records together with C, W and S
control            a record that cancels, moves or replaces schedules
receipt            the one answer to a control, in the receipts topic
query              a control that cancels all schedules that its predicate matches, with an id or without
series             the occurrences of a recurring schedule
hold               keep a due record back while its target is paused, limited or in doubt
adopt              take over a bucket that a Spark job has built
doubt              a partition that may hold a transaction which the brokers have forgotten
retry              the rules by which a delay topic counts the attempts of a record that comes back
dead-letter topic  the target of records without an attempt left
late record        a record at or before W when it is indexed; it leaves in the next transaction
lateness           the time from the due time of a record to its release
policy             settings that may change while routers run
=================  =====================================================================================

Nothing here does I/O, reads a clock, starts a thread or logs: time is an argument, and the functions return values that
the caller acts on. The import rule is enforced by ``tests/unit/test_layering.py``.
"""
