"""Bulk work on Spark: what is too much for the process beside Kafka, or must not disturb it.

Four jobs belong here, all of them batch, all of them safe to kill and to run again:

- *backfill*: build the buckets of an index for offsets [a, b) of each delay partition and stage their manifests in
  the backfill topic, where the owner of the partition adopts them in one of its own transactions;
- *import*: turn a table of schedules from elsewhere into records of a delay topic;
- *audit*: count from the topics alone what was sent, released, rejected, doubled, early and lost;
- *rebuild*: make a lost index again from the delay topic and from what was released.

A job never writes state. Whatever it stages counts only once the fenced owner of the partition has taken it, so a job
that is late, killed or run twice does no harm.

Depends on ``index`` (the rules and the order of entries) and ``snapshots`` (bytes and addresses), never on
``sidecar``: a job runs on executors where no Kafka client, configuration or clock of the router exists.
"""
