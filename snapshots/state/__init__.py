"""The records of the state topic and the backfill topic: progress, rules, masks, held records, and their inventory.

Begin with :mod:`snapshots.state.state`, which also folds the records into a state.
"""
