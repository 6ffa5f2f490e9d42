"""A whole partition in one thread: log, store, routers that crash, and a checker that knows only what was asked.

One seed is one run. The scheduler (:mod:`.run`) picks what happens next: records arrive, clocks move (backwards too)
and drift apart, a router does a round, is killed between any two of its effects, loses the answer to a commit, has a
request to end a transaction sent twice, or starts again with other rules; segments are refused, damaged, read late or
not at all; topics are compacted, trimmed, and expire before their time. One to three routers are members of a group
(:mod:`.members`) that gives the partition from one to the other, and of whose decisions they hear late: between any
two effects of one of them another may act that believes to be the owner as well. What the routers do is the code that
ships: take-over, rounds, intake, releaser, gate, buckets, adoption and every stored byte (:mod:`.serving`); here are
only its ports (:mod:`.host`), to a model of Kafka (:mod:`.world`, :mod:`.fetching`). It may die at each of its
failpoints, and before and after each call of a port. Partitions share nothing, so a run has one. Limits are so small
that a run has several buckets of several segments. The checker (:mod:`.checker`) compares what producers asked for
with what the store holds, and after each round what the owner holds for pending with what is still owed
(:mod:`.pending`).

A proof that cannot fail proves nothing, so :mod:`.wrong` and the modules beside it hold routers with one thing wrong
each, an override of a class that ships, and the test asserts that each of them is caught; :mod:`.mutants` has the
table.

``python -m tests.simulation SEED`` replays one run and prints what happened; a second argument names a wrong router.
"""
