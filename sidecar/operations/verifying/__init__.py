"""Checks everything that is stored of a delay topic, for ``verify``; changes nothing.

Begin with :mod:`sidecar.operations.verifying.verifier`, which reads; :mod:`sidecar.operations.verifying.damage` judges
the records that were read. Buckets that a job has staged are not checked: the owner checks them before it adopts them.
"""
