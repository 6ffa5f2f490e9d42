"""What may change while routers run: policies for a target, a delay topic or all of them.

May import: ``release`` (values only), ``kafka``, ``config``. Begin with :mod:`sidecar.policies.policy`, one
policy, and :mod:`sidecar.policies.table`, what all of them together say of a delay topic.
"""
