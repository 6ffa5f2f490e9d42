"""One valid configuration, from a TOML file and the environment.

May import: no other room of :mod:`sidecar`. Begin with :mod:`sidecar.config.model`; where values come from is in
:mod:`sidecar.config.sources`, what is printed by ``delay-router config`` in :mod:`sidecar.config.reference`.
"""
