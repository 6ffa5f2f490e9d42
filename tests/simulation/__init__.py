"""Simulates one partition in one thread: log, store, routers that crash, and a checker that knows only the orders.

One seed is one run. Partitions share nothing but the producers of lanes, so a run has one partition, and
:mod:`.shared` plays the transactions of several. Its limits are small enough for several buckets of
several segments.

The scheduler (:mod:`.run`) picks the next event. Records arrive, some in batches that no client can read. Clocks move,
also backwards, and drift apart. A router does a round, dies between any two of its effects, loses the answer to a
commit, sends a request to end a transaction twice, or starts again with other rules. Brokers refuse records, and
targets are deleted (:mod:`.refusing`). Segments are refused, damaged, read late or not read at all. Topics are
compacted, trimmed, and expire before their time. One to three routers are members of a group (:mod:`.members`), which
gives the partition from one to the other. They hear of the group's decisions late, so that between any two effects of
one router another one that also believes to be the owner may act.

The routers are the shipped code: the loop of a worker, take-over, rounds, intake, releaser, gate, buckets, adoption and
every stored byte (:mod:`.serving`). Only their ports (:mod:`.host`) lead to a model of Kafka (:mod:`.world`,
:mod:`.fetching`). A router may die at each of its failpoints, and before and after each call of a port. The shipped
reader of a delay partition is not played, so neither are fetches that it cuts short. The model hands over pieces of the
log, which the shipped code decides, and batches that no client can read.

The checker (:mod:`.checker`) compares the orders of the producers with the content of the store. After each round it
compares the pending entries of the owner with the records that are still owed (:mod:`.pending`).

A proof that cannot fail proves nothing. So :mod:`.wrong` and the modules beside it hold routers with one mistake each,
an override of a shipped class, and the test asserts that the checker catches each of them; :mod:`.mutants` prints the
table.

A playbook (:mod:`.playbook`) plays one behaviour on the same model, without faults, for a test of few lines.

``python -m tests.simulation SEED`` replays one run and prints its events; a second argument names a wrong router.
"""
