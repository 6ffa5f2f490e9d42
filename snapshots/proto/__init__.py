"""The protobuf messages of everything stored, and the code generated from them (``make proto``); nothing else.

Field numbers are never used again. What the messages mean stands in the modules of :mod:`snapshots` that encode them.
"""
