"""The cluster around the routers: the topics that they need, and the rights.

Begin with :mod:`sidecar.cluster.topics.topics` and :mod:`sidecar.cluster.rights.acls`.
"""
