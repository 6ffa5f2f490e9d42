"""Tests faults on real brokers: losses, delays, stops and foreign writers, followed by an audit.

``make faults`` runs all of them, ``make soak MINUTES=n`` runs faults of every kind at random under a steady load. The
tests marked ``quick`` are part of ``make test``. Each test ends with :func:`tests.faults.stage.settled`: the auditor
has found nothing lost, doubled, early or altered, no transaction is left open, and the fault has had an effect.
"""
