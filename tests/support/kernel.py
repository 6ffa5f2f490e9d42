"""The compiled kernel, for tests of what it does."""

import os

import pytest

from sidecar.kernel.choice import Kernel


def native_kernel() -> Kernel:
    """The kernel; the tests of a module that asks for it are skipped where there is none, and fail with CI=true."""
    kernel = Kernel.chosen({})
    if kernel.why_not and os.environ.get("CI") != "true":
        pytest.skip(f"no kernel: {kernel.why_not}; python hatch_build.py compiles it", allow_module_level=True)
    assert not kernel.why_not, kernel.why_not
    return kernel
