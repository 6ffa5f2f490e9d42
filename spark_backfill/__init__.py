r"""Bulk work on Spark: jobs that are too large for the process beside Kafka, or would disturb it.

Five jobs, all of them batch, all of them safe to kill and to run again (``python -m spark_backfill --help``):

- ``index``: build the buckets of an index for offsets [a, b) of each delay partition and stage their manifests in the
  backfill topic, where the owner of the partition adopts them in one of its own transactions;
- ``schedule``: turn a table of schedules from another system into records of a delay topic;
- ``audit``: count from the topics alone the records sent, released, rejected, doubled, early and lost;
- ``rebuild``: make a lost index again from the delay topic and from the released records;
- ``export``: write the pending records as a table.

A job never writes state. A staged bucket counts only once the fenced owner of the partition has taken it, so a job that
is late, killed or run twice does no harm.

How ``index`` works
-------------------
The driver reads the state of the cluster (:mod:`spark_backfill.build.scope`), refuses impossible requests, divides the
offsets into buckets and slots (:mod:`spark_backfill.buckets.plan`) and writes an *intent* for each partition, so that
no record of the range is trimmed meanwhile. Then Spark works, and the driver holds no record::

    connector ─► decide ─► shuffle by slot ─► sort, cut, encode, write ─────► stage
    (pinned      (Arrow)   (a run a slot and  (a data source's tasks)         (its commit: one transaction)
     offsets)               batch)            D.delay-snapshots               D.delay-backfill

Rejected records are staged too, as entries due at once that have no payload: their owner decides them again and rejects
them in its own transaction, once, like any other record.

On a cluster
------------
``make spark-zip`` makes ``dist/spark_backfill.zip`` with the three packages that a job needs; ``JOBS.md`` describes how
to submit it, and the image. Executors also need the native packages, which a zip cannot carry. The configuration is the
router's own. Files that it names for TLS are read on the driver and travel as text.

Packages
--------
``audit``, ``schedule``, ``export``, and for the two jobs that build an index ``build`` and ``buckets``. The modules
here are shared: settings, the cluster, the Spark session and its jars, reading a topic, tables in any format, the
command line.

The package depends on ``index`` (the rules and the order of entries) and ``snapshots`` (bytes and addresses), never on
``sidecar``: code on executors has no configuration, metrics or log of a router.
"""
