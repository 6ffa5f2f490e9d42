"""The protobuf messages of everything stored, and the code generated from them (``make proto``); nothing else.

Field numbers are never used again. What the messages mean is told by the modules of :mod:`snapshots` that encode them.
"""
