"""A model of one delay partition with names: controls, queries, series and retries beside every trouble.

The simulation (:mod:`tests.simulation`) plays the shipped code. This model plays the design alone, in a few hundred
lines, so a failure here means that the rules themselves are wrong::

    history.py   the world: producers and consumers append to the log at random, time passes, transactions commit
    design.py    the router: state that is committed with its outputs, and memory that a crash loses
    judge.py     the guarantees, found in the log and in the outputs alone

One run plays some hundred random steps of one seed: reading, releasing, sealing, merging in two steps, adopting a
bucket of Spark, crashes, and a router that is away while producers send. Then every pending schedule leaves, and the
judge reads the result. Each wrong router of ``WRONG`` drops one rule of the design.

The sizes are small on purpose: four ids, a period of 25 ticks and ladders of three attempts make most records meet.
"""
