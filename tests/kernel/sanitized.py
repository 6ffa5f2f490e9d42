"""Loads the kernel from KERNEL_FOLDER on import, also by ``pytest -p tests.kernel.sanitized``."""

import os

import sidecar.kernel

sidecar.kernel.__path__.insert(0, os.environ["KERNEL_FOLDER"])
