"""A whole partition in one thread: log, store, routers that crash, and a checker that knows only what was asked.

One seed is one run. The scheduler (:mod:`.run`) picks what happens next: records arrive, the clock moves (backwards
too), a router does a round, is killed between any two of its effects, loses the answer to a commit, is usurped while it
goes on, or starts again with other rules; segments are refused, damaged, read late or not at all, and topics are
compacted and trimmed. The router (:mod:`.router`) is the real one but for Kafka's clients, threads and the waiting:
rules, index, sealing, loading, merging, removal and every stored byte. Only Kafka is a model (:mod:`.world`,
:mod:`.fetching`). Limits are so small that a run has several buckets of several segments. The checker
(:mod:`.checker`) compares what producers asked for with what the store holds.

A proof that cannot fail proves nothing, so :mod:`.wrong` and :mod:`.wrong_buckets` hold routers with one thing wrong
each, and the test asserts that every one of them is caught.

``python -m tests.simulation SEED`` replays one run and prints what happened; a second argument names a wrong router.
"""
