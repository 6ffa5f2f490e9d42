"""Simulates the transactions that several partitions of several topics share, in threads that take turns.

The runs of :mod:`tests.simulation.run` play all of one partition. They trust the contract of a lane: each transaction
of a partition becomes visible as a whole or not at all, and its owner hears the truth or *unknown*. The runs here play
the code that keeps this contract. The shipped lane (:mod:`sidecar.kafka.writing.lane`), the lanes of a process
(:mod:`sidecar.kafka.writing.lanes`) and the end of a former lane (``ownership.lanes.end_former``) serve three
partitions of two topics in two processes::

    scheduler ──► one thread runs up to its next lock, or call of a broker ──► scheduler picks the next thread
    partition ──► fence the own id ──► join a lane ──► end the former lane ──► note the lane ──► release in the lane
    brokers   ──► epochs and open transactions of each id, the state and the released records of each partition

The owner of a partition is small: it releases the next records, and notes how far it has come. So the checker needs
one rule: each transaction that becomes visible continues the one before. A record is doubled if it begins earlier, and
lost if it begins later.

Commits are refused, aborted, or have no answer, in which case they may still arrive before the id is fenced.
Connections are lost. A partition is in trouble: brokers refuse its records until it is served by itself. Processes are
killed, and the group gives partitions to another process, whose former owner hears of it late.

``python -m tests.simulation SEED Lanes`` replays one run and prints its events.
"""
