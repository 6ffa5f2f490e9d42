"""Tests a real Prometheus that scrapes a real router with a real Kafka, by the queries of dashboard and alerts."""
