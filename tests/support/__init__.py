"""Helpers shared by tests of several rooms: doubles, builders of records, models, and topics in a real Kafka."""

import pytest

# Their assertions show the differing values, as those of a test do.
pytest.register_assert_rewrite(*(f"{__name__}.{name}" for name in ("configuration", "partition_twin", "bucket_twin")))
