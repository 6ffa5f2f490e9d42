"""Tests the kernel under the sanitizers of the compiler: ``make test-kernel``."""
