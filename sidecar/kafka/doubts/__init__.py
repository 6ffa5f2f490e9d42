"""Finds partitions that may hold a transaction which the brokers have forgotten, and writes nothing there.

Kafka leaves out the commit or abort marker of a partition that has no leader when the marker is due (KAFKA-20734), and
takes the transaction for complete. On that partition the transaction stays open: consumers with
``isolation.level=read_committed`` see nothing behind its first record, and the next transaction of the same producer id
that writes to the partition ends it with an outcome of its own. So an aborted transaction of this router could become
visible (records doubled), and a committed one could vanish (records lost).

The router never ends, repeats or judges such a transaction by itself. It writes nothing to the partition::

    take-over: fence ──► for each partition that may be written to: last stable offset = end?
                             │ yes                    │ no                          │ no answer
                             ▼                        ▼                             │
                         no doubt        leader epoch of the first open record      │
                                          = leader epoch of now?                    │
                                             │ yes          │ no                    │
                                             ▼              ▼                       ▼
                                         no doubt         in doubt: records for this partition are held
                                                            (sidecar/engine/release/gate.py), all others go on
                                                            │
                        looked at again each second ◄───────┘   until all that the look has seen there is settled

* A partition can only lose a marker while it has no leader, and a new leader has a higher epoch. So a transaction whose
  first record has the current epoch has lost nothing, and neither has any transaction behind it. One record is enough;
  its writer and its headers do not matter, since applications forward released records with their headers.
* The look sees every record of the former owner. A new leader answers for its end only once its high watermark has
  reached the start of its epoch (KIP-207), so records of earlier epochs lie below that end.
* A partition without a leader gives no answer. One with fewer in-sync replicas than its topic demands is not asked: it
  takes neither records nor markers, so a transaction that wrote there would not end.
* The delay partition and the receipts are places like others. While one of them is in doubt, the router indexes no
  record, and releases of due records continue. A recurring record waits while the delay partition is in doubt. Rejected
  records go to another partition of the rejected topic. The router cannot do without
  the state, the snapshots and the backfill partition: the take-over waits, and ``/readyz`` names the transaction.

``delay-router end-transaction`` (:mod:`sidecar.kafka.doubts.ending`) ends a transaction that stays open, when an
operator has compared producer ids. librdkafka has no request that tells the producer id of an open transaction
(``DescribeProducers``), so the router cannot compare them.

Why nothing is healed automatically
-----------------------------------
An earlier design ended such transactions at each take-over and wrote committed ones again, by the ``delay-source``
header of their records. Every application that reads a target has these headers and may write them in a transaction of
its own. The design took such records for the router's, and wrote them twice. With three replicas and
``min.insync.replicas=2`` a marker is lost only when several brokers fail at once, so certainty is worth more than speed
here.
"""
