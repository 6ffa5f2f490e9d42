"""Computes how much a load takes of processes and brokers, and compares a process with the limit of its container.

Begin with :mod:`sidecar.operations.sizing.capacity`, the answer of ``plan`` and the tables of OPERATIONS.
"""
