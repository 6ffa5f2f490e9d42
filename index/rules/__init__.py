"""The rules of a delay topic: they turn each record into a schedule, a control, or a rejection with its reason.

Begin with :mod:`index.rules.rules`, ``Rules.decide``. :mod:`index.rules.rule_history` knows the rules of earlier
offsets, :mod:`index.rules.retrying` counts attempts, and :mod:`index.rules.rules_stored` writes rules for the state.
"""
