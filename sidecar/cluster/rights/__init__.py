"""The rights that routers, jobs and commands need on a cluster with ACLs, from the configuration alone.

Begin with :mod:`sidecar.cluster.rights.acls`, which also prints rights as shell commands; every other output format has
a module of its own.
"""
