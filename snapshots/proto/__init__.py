"""The protobuf messages of everything stored, and the code generated from them (``make proto``); nothing else.

Field numbers are never used again. The modules of :mod:`snapshots` that encode the messages say their meaning.
"""
