"""Tests by tier: ``unit`` needs nothing, ``integration`` a Kafka, ``bench`` is run by ``make bench``."""
