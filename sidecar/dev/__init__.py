"""Tools to try the router out: a local Kafka, the demo, and the audit that counts what became of every record.

Routers load none of them.
"""
