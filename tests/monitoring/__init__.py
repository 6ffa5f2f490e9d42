"""A real Prometheus that scrapes a real router at a real Kafka, and is asked what the dashboard and the alerts ask."""
