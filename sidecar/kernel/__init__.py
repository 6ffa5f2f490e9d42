"""Optional native code for what is done with every record; without it the router does the same in Python, slower.

May import: ``kafka``. Begin with :mod:`sidecar.kernel.choice`: whether a process uses it, and why not.
``_fetching.pyx`` reads a partition, ``_deciding.pyx`` decides its records, ``_release.pyx`` writes released ones,
``_segments.pyx`` decodes segments and takes them apart into rows, ``_rows.pyx`` joins them of rows, and ``_runs.pyx``
puts rows in order before that; ``hatch_build.py`` compiles them. Jobs on Spark find :mod:`sidecar.kernel.jobs` by an
entry point, and have ``_columns.pyx`` decide what they read.

Python is the definition. A native function does the same, or stops in front of what is not of the common form and
leaves it to Python: errors, refusals and everything rare stay in one place. It is used only with versions of
confluent-kafka whose layout is tested (``KNOWN`` in :mod:`sidecar.kafka.librdkafka`), and uses the client that is there
already: configuration, security, transactions and callbacks stay with that.

Decisions, with what was rejected
---------------------------------
* *Cython*, typed, for whoever reads the rest reads this. Rejected: C, which the first draft was in and which is no
  faster here (the time goes into librdkafka, and into taking tuples apart); Rust, a second tool chain for each build;
  mypyc, which made the hot modules 5 % faster; cffi and ctypes, whose call costs more than what is to be saved.
* *Found by address* in the library that confluent-kafka has loaded. Rejected: linking with a librdkafka of our own,
  which would be a second one in the process, of another version some day.
* *Two passes*, one with the lock of the interpreter and one without. Rejected: letting go of it for each record.
* *The partition's own queue*, taken before anything is in it; Python goes on serving the main queue. Rejected: serving
  that natively, where confluent-kafka's callbacks end the process; and its messages, of a dozen objects each.
* *Here, and handed in* as a :class:`snapshots.codec.SegmentCodec` where partitions are put together. Rejected: compiled
  modules in ``snapshots``, which would have to find out what is compiled, and whether it is switched off, by itself.
"""
