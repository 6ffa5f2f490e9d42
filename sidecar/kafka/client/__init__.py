"""Clients: the settings of each role, the meaning of each error, lost connections, the consumer group, admin requests.

Begin with :mod:`sidecar.kafka.client.clients` and :mod:`sidecar.kafka.client.errors`.
"""
