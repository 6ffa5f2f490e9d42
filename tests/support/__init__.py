"""What tests of several rooms share: doubles, builders of records, models, and topics in a real Kafka."""

import pytest

# Their assertions tell what differed, as those of a test do.
pytest.register_assert_rewrite(*(f"{__name__}.{name}" for name in ("configuration", "partition_twin", "bucket_twin")))
