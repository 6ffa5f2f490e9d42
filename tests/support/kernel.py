"""The compiled kernel, for tests of its functions."""

import os

import pytest

from sidecar.kernel.choice import Kernel


def native_kernel() -> Kernel:
    """Return the kernel; without one, the tests of the calling module are skipped, and fail with CI=true."""
    kernel = Kernel.chosen({})
    if kernel.why_not and os.environ.get("CI") != "true":
        pytest.skip(f"no kernel: {kernel.why_not}; python hatch_build.py compiles it", allow_module_level=True)
    assert not kernel.why_not, kernel.why_not
    return kernel
