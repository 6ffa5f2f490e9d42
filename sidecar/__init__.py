"""The router process: the only package with Kafka clients, threads, sockets, signals, configuration and metrics.

Each folder is a room whose ``__init__`` states its purpose. A record passes through these rooms from its header to its
release: :mod:`sidecar.engine.intake` reads and decides it, :mod:`index` keeps it while it waits,
:mod:`sidecar.engine.ownership` runs the loop of a partition, :mod:`sidecar.engine.release` writes and commits it.
:mod:`sidecar.engine.buckets` keeps the records that do not fit into memory. :mod:`sidecar.app` connects everything.

Theory of operation
-------------------
A process is a member of a consumer group, whose only purpose is to distribute delay partitions
(:mod:`sidecar.kafka.client.membership`). Each assigned partition has a worker (:mod:`sidecar.process.host.worker`), a
thread with all parts of the partition: a tail consumer, a transactional producer whose id no other owner can use at
the same time, and the index of the pending records. With ``router.lanes`` several partitions share a producer
(:mod:`sidecar.engine.ownership.lanes`).

::

    delay topic ──► intake ──► index ──► screening ──► transaction ──► target topics, rejected topic
                                ▲                          │
                                └── takeover ◄── state ◄───┘ progress, in the same transaction

A take-over fences the old owner, reads its progress from the state topic, and reads the delay topic again from S on
(:mod:`sidecar.engine.ownership.takeover`). Then the worker plays rounds (:mod:`sidecar.engine.ownership.rounds`): it
indexes the records that have arrived and releases the records that are due. One transaction holds the released and
rejected records together with the progress, so no record is ever visible without the progress that covers it, or the
reverse.

Policies change the rules while routers run (:mod:`sidecar.policies.table`, :mod:`sidecar.operations.desk`). One
thread of each process follows the policies topic (:mod:`sidecar.policies.watch`), and each worker applies a change in
its next round. A change never touches a decision already taken: pending records keep their due time and their targets,
also across restarts (:mod:`sidecar.engine.ownership.rule_changes`). A change does affect the checks at release. The
router rejects records for a target that is no longer allowed and records beyond a new limit
(:mod:`sidecar.engine.release.expiry`), keeps the records of a paused delay topic, and holds records that a target may
not get yet, without a delay for others (:mod:`sidecar.engine.release.gate`).

Operators read and change policies over HTTP (:mod:`sidecar.http.api`). Any process answers for the group, in a thread
beside the release path.

Between releases the worker maintains the buckets (:mod:`sidecar.engine.buckets.lifecycle`): it seals pending records
into segments, loads segments shortly before they are due (:mod:`sidecar.engine.buckets.loading`), merges and removes
buckets, and trims topics (:mod:`sidecar.engine.buckets.upkeep`). It writes segments, manifests and tombstones in the
same fenced transactions as releases.

The code that decides and orders has no clients, threads or clocks of its own. It reaches them through small ports
(:mod:`sidecar.engine.ports`, :mod:`sidecar.engine.ownership.ports`), which the process
(:mod:`sidecar.process.host.kafka_host`) and the simulation implement.

Many errors leave the outcome of a transaction open (:mod:`sidecar.kafka.client.errors`). The worker then discards
producer, index and batch and takes the partition over again: the log tells the outcome.
:mod:`sidecar.engine.ownership.serving` decides when.

Decisions, with the rejected alternatives
-----------------------------------------
* *One producer per partition*, fenced by ``init_transactions``. Rejected: one per process with group metadata
  (KIP-447); a zombie's open transaction would hold up readers until its timeout, and sending offsets costs time in each
  transaction.
* *One thread per partition*. Rejected: a thread pool or asyncio; confluent-kafka's calls block, and its asyncio
  producer refuses headers.
* *Trials to find a refused record* (:mod:`sidecar.kafka.writing.refusals`). Rejected: a delivery callback on every
  record, which costs a fifth of the throughput and is needed very rarely.
* *Classic group protocol, cooperative-sticky*. Rejected: KIP-848, whose session a client cannot make shorter than 45 s
  on an unmodified broker.
"""

__version__ = "0.2.0.dev0"
