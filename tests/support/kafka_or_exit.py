"""End with one line when tests are going to need a Kafka and this machine has none.

Tests that run in one process say it themselves (``tests/conftest.py``); none of several can end the run of all.
"""

import sys

from sidecar import local_kafka

if __name__ == "__main__":
    try:
        local_kafka.check_available()
    except local_kafka.KafkaUnavailable as error:
        sys.exit(f"the tests need Kafka: {error}")
