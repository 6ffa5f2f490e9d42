"""Benchmarks of the router, compared with the limits of the same machine.

Every figure of the router is a ratio to one of two loops that the same run measures, on the same machine, with the same
records: the *ceiling* (a bare transactional consume→produce loop) and the *raw consume loop*. Rates of different
machines cannot be compared; these ratios can.

::

    python -m tests.bench                   all but the largest and those of operations, three times: about 100 minutes
    python -m tests.bench --rounds 1        the same once, without the spread of each figure
    python -m tests.bench burst idle        some of them; the ceiling is measured too where a ratio needs it
    python -m tests.bench large             10 M pending, about 13 minutes; --records 1000000 to try it out
    python -m tests.bench policy admin limited rolling      operations, about 7 minutes: make bench-ops
    python -m tests.bench cancels finding receipts series storms without-id    named schedules: make bench-named
    python -m tests.bench retries           a ladder of attempts, and retries beside plain delays: make bench-retries
    python -m tests.bench --quick           small sizes, to see that everything runs; the figures mean little

The broker, the loops, the load and the router are separate processes and share two cores. Lateness is the broker's
append time in the target topic minus the due time. It is read back from the target topic, where every run also counts
lost, doubled and early records.
"""
