"""One HTTP server class, two listeners: probes and metrics without tokens, the admin API and the page behind a guard.

A listener bounds connections, headers and time (:mod:`sidecar.http.server`, :mod:`sidecar.http.listening`). The probes
add a rate for each client (:mod:`sidecar.http.probes`). The guard of the admin API checks Host, token, role, pace and
body, and gives every refusal its form (:mod:`sidecar.http.guard`); :mod:`sidecar.http.api` gives the reasons.

Start at :mod:`sidecar.http.server`.
"""
