"""Whoever imports this has the kernel that is in KERNEL_FOLDER, also by ``pytest -p tests.kernel.sanitized``."""

import os

import sidecar.kernel

sidecar.kernel.__path__.insert(0, os.environ["KERNEL_FOLDER"])
