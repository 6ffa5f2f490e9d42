"""The engine: everything that decides and orders for one delay partition.

It has no Kafka client, no thread, no socket and no clock. It reaches the cluster and the process through ports
(:mod:`sidecar.engine.ports`, :mod:`sidecar.engine.ownership.ports`), gets the time as an argument, and takes its limits
as one value (:mod:`sidecar.engine.limits`). So the simulation runs exactly the modules of this folder.

=============  ========================================================================================
room           duty
=============  ========================================================================================
``ownership``  decides when to take a partition over, and runs the rounds that index and release
``intake``     decides each record that was read, and puts it into the index
``release``    makes one transaction of the due records, from the plan to the commit
``buckets``    seals, loads, merges and removes the records that are pending outside memory
``payload``    keeps a record between intake and release, whole or packed
=============  ========================================================================================

Segments have no port of their own: the owner reads them through ``Records`` and writes them through ``Transactions``,
so that one fencing ends all writes of an old owner (DECISIONS.md, 14).

:mod:`sidecar.process.host` implements the ports with clients and threads, ``tests/simulation`` with a modelled cluster.
"""
