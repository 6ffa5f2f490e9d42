"""One transaction, from a planned batch to committed: what leaves, what is refused, what has to wait.

May import: ``payload``, ``kafka``, ``config``. Begin with :mod:`sidecar.release.releaser`; it screens
(:mod:`sidecar.release.screening`), writes (:mod:`sidecar.release.writer`), commits, and finds what brokers refuse
(:mod:`sidecar.release.refusals`).
"""
