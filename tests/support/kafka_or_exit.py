"""Ends with one line when tests need a Kafka and this machine has none.

Tests that run in one process report it themselves (``tests/conftest.py``). One of several processes cannot end the run
of all.
"""

import sys

from sidecar.dev import local_kafka

if __name__ == "__main__":
    try:
        local_kafka.check_available()
    except local_kafka.KafkaUnavailable as error:
        sys.exit(f"the tests need Kafka: {error}")
