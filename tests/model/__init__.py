"""Models of the design, apart from the shipped code.

``Partition.tla`` and ``Lanes.tla`` are in TLA+: the model checker TLC plays every order of their steps. The model of
names (:mod:`tests.model.named`) is in Python and plays random runs: it has too many states to play them all.
"""
