"""Faults on real brokers: what is lost, slow, stopped or foreign, and an auditor that looks afterwards.

``make faults`` runs all of it, ``make soak MINUTES=n`` faults of every kind at random under a steady load. The tests
marked ``quick`` are part of ``make test``. Each ends with :func:`tests.faults.stage.settled`: the auditor has found
nothing lost, doubled, early or altered, no transaction is left open, and the fault has had an effect.
"""
