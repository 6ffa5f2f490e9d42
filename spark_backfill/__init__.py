r"""Bulk work on Spark: what is too much for the process beside Kafka, or must not disturb it.

Five jobs, all of them batch, all of them safe to kill and to run again (``python -m spark_backfill --help``):

- ``index``: build the buckets of an index for offsets [a, b) of each delay partition and stage their manifests in the
  backfill topic, where the owner of the partition adopts them in one of its own transactions;
- ``schedule``: turn a table of schedules from elsewhere into records of a delay topic;
- ``audit``: count from the topics alone what was sent, released, rejected, doubled, early and lost;
- ``rebuild``: make a lost index again from the delay topic and from what was released;
- ``export``: write what is pending as a table.

A job never writes state. Whatever it stages counts only once the fenced owner of the partition has taken it, so a job
that is late, killed or run twice does no harm.

How ``index`` works
-------------------
The driver asks the cluster what there is (:mod:`spark_backfill.build.scope`), refuses what cannot be done, divides the
rest into buckets and slots (:mod:`spark_backfill.buckets.plan`) and writes an *intent* for each partition, so that
nothing of it is trimmed meanwhile. Then Spark works, and the driver holds no record::

    connector ─► decide ─► shuffle by slot ─► sort, cut, encode, write ─────► stage
    (pinned      (Arrow)   (a run a slot and  (a data source's tasks)         (its commit: one transaction)
     offsets)               batch)            D.delay-snapshots               D.delay-backfill

Rejected records are staged too, as entries due at once that have no payload: their owner decides them again and
rejects them in its own transaction, once, as it does with any other.

On a cluster
------------
``make spark-zip`` makes ``dist/spark_backfill.zip`` with the three rooms that a job needs; ``JOBS.md`` tells how to
submit it, and of the image. Executors also need the native packages, which a zip cannot carry. The configuration is the
router's own. Files that it names for TLS are read on the driver and travel as text.

Rooms
-----
``audit``, ``schedule``, ``export``, and for the two jobs that build an index ``build`` and ``buckets``. What they
share is here: settings, the cluster, the Spark session and its jars, reading a topic, tables in any format, the command
line.

Depends on ``index`` (the rules and the order of entries) and ``snapshots`` (bytes and addresses), never on
``sidecar``: what runs on executors has no configuration, metrics or log of a router.
"""
