"""The router process: the only room with Kafka clients, threads, sockets, signals, configuration and metrics.

Where to start: each folder is a room whose ``__init__`` says what it is for. From a header to a release:
:mod:`sidecar.intake` reads and decides, :mod:`index` keeps what waits, :mod:`sidecar.partition` goes round,
:mod:`sidecar.release` writes and commits; :mod:`sidecar.buckets` keeps what does not fit into memory.
:mod:`sidecar.app` connects everything.

Theory of operation
-------------------
A process is a member of a consumer group, which does nothing but share out delay partitions
(:mod:`sidecar.kafka.membership`). Each assigned partition has a worker (:mod:`sidecar.partition.worker`), a thread that
owns everything about it: a tail consumer, a transactional producer whose id no other owner can use at the same time,
and the index of what is pending.

::

    delay topic ──► intake ──► index ──► screening ──► transaction ──► target topics, rejected topic
                                ▲                          │
                                └── takeover ◄── state ◄───┘ progress, in the same transaction

Take-over fences the old owner, reads where it stood from the state topic, and reads the delay topic again from there
(:mod:`sidecar.partition.takeover`). Then the worker goes round (:mod:`sidecar.partition.rounds`): index what has
arrived, release what is due. One transaction holds the released and rejected records and the progress that says so, so
there is no moment at which one is true without the other.

Policies change what holds while routers run (:mod:`sidecar.policies.table`, :mod:`sidecar.policies.operations`): one
thread a process follows the policies topic (:mod:`sidecar.policies.watch`), and each worker takes a change up in its
next round. A change never touches a decision that was taken: pending records keep their due time and their targets,
also across restarts (:mod:`sidecar.partition.rule_changes`). It does hold for all that is looked at on release: a
target that is no longer allowed diverts pending records, a new limit expires them (:mod:`sidecar.release.expiry`), a
pause keeps them, and what a target may not be given yet is held aside without holding up others
(:mod:`sidecar.release.gate`).

Operators ask and change all of that over HTTP (:mod:`sidecar.http.api`), in a thread of its own beside the release
path, and any process answers for the group.

Between releases the worker keeps house (:mod:`sidecar.buckets.lifecycle`): it seals what is pending into segments,
loads segments shortly before they are due (:mod:`sidecar.buckets.loading`), merges and removes buckets, and trims
topics (:mod:`sidecar.buckets.upkeep`). Segments, manifests and tombstones travel in the same fenced
transactions as releases.

All that decides and orders is without clients, threads and clocks of its own: it reaches them through small ports
(:mod:`sidecar.partition.ports`), which the process implements (:mod:`sidecar.partition.kafka_host`) and the simulation.

After any error but a broker's clean verdict about a record (:mod:`sidecar.kafka.errors`) the outcome may be unknown.
The worker then throws producer, index and batch away and takes over again: the log decides what happened.

Decisions, with what was rejected
---------------------------------
* *One producer a partition*, fenced by ``init_transactions``. Rejected: one a process with group metadata (KIP-447); a
  zombie's open transaction would hold up readers until its timeout, and sending offsets costs time in each transaction.
* *One thread a partition*. Rejected: a thread pool or asyncio; confluent-kafka's calls block, and its asyncio producer
  refuses headers.
* *Trials to find a refused record* (:mod:`sidecar.release.refusals`). Rejected: a delivery callback on every record,
  which costs a fifth of the throughput to learn something once in a blue moon.
* *Classic group protocol, cooperative-sticky*. Rejected: KIP-848, whose session cannot be made shorter than 45 s by a
  client on an unmodified broker.
"""

__version__ = "0.1.0"
