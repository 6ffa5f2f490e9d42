"""Tools to try the router out: a local Kafka, the demo, and the audit that counts the outcome of every record.

A router loads none of these tools.
"""
