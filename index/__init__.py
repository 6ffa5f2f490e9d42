"""The pure core of the router: the records that wait, that are due, and that leave next.

Theory of operation
-------------------
A delay partition is a log. Reading it in offset order, :mod:`index.rules.rules` decides each record from its headers,
its timestamp and the configured rules: *accepted* with a due time and targets, or *rejected* with a reason. The
decision never looks at a clock, because a partition that is taken over reads part of its log again and must decide the
same.

:mod:`index.partition.partition` keeps the accepted records that have not been released, sorted by (due, offset), and
says which leave next. Two numbers tell everything about the past: the *cursor* C (every record below it has been
indexed) and the *watermark* W (every pending entry at or before it has been released). See
:mod:`index.pending.progress`.

* offset below C and (due, offset) at or before W: done.
* offset below C and (due, offset) after W: pending.
* offset at or beyond C: not looked at yet.

C and W are written in the same transaction as the records that leave, so they stay true through any crash. There is no
record per completed message and nothing to deduplicate: an entry that is loaded again and lies at or before W is
dropped.

Pending entries do not all stay in memory. :mod:`index.partition.pending_set` holds the newest entries and those due
soon. The rest lies in immutable *buckets* (:mod:`index.buckets.bucket`, after PIP-195), sealed, cut into segments, and
merged when they are many (:mod:`index.buckets.bucket_rules`). S, at most C, is the offset below which everything is in
a bucket or done; W never passes an entry that is not in memory. An entry that is loaded twice is known by its offset,
or lies at or before W, and is dropped.

A batch that cannot be read is rejected as one range. A replay accepts nothing of it, even if it is readable then:
readability does not replay as a decision does (:mod:`index.pending.skipped`).

A Spark job may also build a bucket, which the owner *adopts* (:mod:`index.partition.adopting`). Until such a bucket has
caught up with W it has a watermark of its own.

In short, with a payload that is a word: a record is decided, waits and leaves, and only two numbers remain of it.

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
``partition``  all of it for one delay partition
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
segment            a part of a bucket, one or more records of the snapshots topic
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
late               released after the due time; the lateness is the difference
policy             settings that may change while routers run
=================  =====================================================================================

Nothing here does I/O, reads a clock, starts a thread or logs: time is an argument, and the functions return values that
the caller acts on. The import rule is enforced by ``tests/unit/test_layering.py``.
"""
