"""The process beside Kafka: clients, threads, configuration, command line, metrics and HTTP.

The only room that talks to the outside: ``index`` decides, ``snapshots`` encodes and addresses, ``sidecar`` does.
"""

__version__ = "0.1.0"
