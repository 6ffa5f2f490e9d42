"""Policies: settings of a target, a delay topic or all delay topics that may change while routers run.

Begin with :mod:`sidecar.policies.policy`, one policy, and :mod:`sidecar.policies.table`, which merges all policies into
the settings of a delay topic.
"""
