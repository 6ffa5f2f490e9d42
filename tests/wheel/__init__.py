"""Tests the project as users get it: the built wheel, its content, and the unit tests on the installed code."""
