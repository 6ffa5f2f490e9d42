"""Tests by tier: ``unit`` needs no service, ``integration`` a Kafka, ``make bench`` runs ``bench``; see targets.py."""
