"""The rights that routers, jobs and commands need on a cluster with ACLs, from the configuration alone.

May import: ``kafka``, ``config``. Begin with :mod:`sidecar.rights.acls`; a form in which rights are printed, other than
commands for a shell, is a module of its own.
"""
