"""One valid configuration, from a TOML file and the environment.

Begin with :mod:`sidecar.config.model`. :mod:`sidecar.config.sources` reads the values; :mod:`sidecar.config.reference`
makes the output of ``delay-router config``.
"""
