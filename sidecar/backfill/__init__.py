"""What Spark jobs stage for a partition: watching for it, adopting it, making lost state anew from it.

May import: ``intake``, ``payload``, ``release``, ``kafka``, ``config``. Begin with :mod:`sidecar.backfill.adopting`.
"""
