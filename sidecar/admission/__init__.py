"""What a request to the admin API must pass before it reaches the code that answers it.

Sizes and time limits of a connection, TLS, Host, token, pace, role, body; and the form of every refusal. What is
checked, in which order and why stands in :mod:`sidecar.api`.

May import ``process`` (how connections are accepted, and at which pace) and ``config``. Start at
:mod:`sidecar.admission.guard`.
"""
