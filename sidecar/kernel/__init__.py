"""Optional native code for the work on every record; without it the router does the same in Python, more slowly.

Begin with :mod:`sidecar.kernel.choice`, which decides whether a process uses the kernel. ``_fetching.pyx`` reads a
partition, ``_deciding.pyx`` decides its records, ``_release.pyx`` writes released records, ``_segments.pyx`` decodes
segments and splits them into rows, ``_runs.pyx`` puts rows in order, and ``_rows.pyx`` joins rows into segments;
``hatch_build.py`` compiles them. Jobs on Spark find :mod:`sidecar.kernel.jobs` by an entry point, and decide the
records that they read with ``_columns.pyx``.

Python is the definition. A native function does the same, or stops in front of the first record that is not of the
common form and leaves it to Python: errors, refusals and everything rare stay in one place. The kernel uses the public
C interface of librdkafka (:mod:`sidecar.kernel.librdkafka`) on the existing client, which keeps configuration,
security, transactions and callbacks.

Decisions, with the rejected alternatives
-----------------------------------------
* *Cython*, typed: a reader of the Python code can read it. Rejected: C, the language of the first draft, which is no
  faster here (the time goes into librdkafka, and into taking tuples apart); Rust, a second tool chain for each build;
  mypyc, which made the hot modules 5 % faster; cffi and ctypes, whose calls cost more than they would save.
* *Functions found by address* in the library that confluent-kafka has loaded. Rejected: linking with a librdkafka of
  our own, which would be a second one in the process, and some day of another version.
* *Two passes*, one with the lock of the interpreter and one without. Rejected: releasing the lock for each record.
* *A plugin of librdkafka*, whose interceptors learn the handle of a client and see each message. Rejected: the handle
  from the memory of the client object, which holds for one version; and clients of our own, whose logs, errors, tokens
  and transactions would be a second confluent-kafka.
* *The partition's own queue*, taken before it has any message; Python goes on serving the main queue. Rejected: serving
  the main queue natively, where confluent-kafka's callbacks end the process; and the messages of confluent-kafka, which
  have a dozen objects each.
* *The codec is here*, and is passed as a :class:`snapshots.segments.codec.SegmentCodec` where partitions are put
  together. Rejected: compiled modules in ``snapshots``, which would have to determine by itself whether they are
  compiled and switched on.
"""
