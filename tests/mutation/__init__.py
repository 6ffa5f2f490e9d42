"""Measures how many small mistakes in the code the tests notice: ``python -m tests.mutation [N]``, ``make mutation``.

cosmic-ray makes the mutants: another operator, another number, a condition that is negated, a loop that never runs. A
sample of them, drawn by a seed, is judged. Each mutant is given to the tests that run its line, found by one run of the
tests with coverage. The mutant replaces the module when it is imported (:mod:`tests.mutation.replacing`), so the source
tree stays as it is and mutants are judged side by side.

A mutant is killed when a test fails or does not end. A module that cannot even be imported says nothing about the tests
and is not counted. The share of killed mutants is the score.
"""
