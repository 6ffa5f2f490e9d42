"""Tests of errors that are stored, to be raised again in another thread."""

import weakref

import pytest

from index.errors import forget_frames


class Part:
    """An object that the frames of an error refer to."""


def fail(_part: Part, *, with_cause: bool) -> None:
    try:
        int("no number")
    except ValueError as first:
        if with_cause:
            raise KeyError("the second error") from first
        raise KeyError("the second error") from None


@pytest.mark.usefixtures("no_garbage_collection")
@pytest.mark.parametrize("with_cause", [True, False])
def test_a_stored_error_lets_go_of_the_objects_in_the_frames_that_it_has_passed(*, with_cause: bool) -> None:
    part, stored = Part(), []
    alive = weakref.ref(part)
    try:
        fail(part, with_cause=with_cause)
    except KeyError as error:
        stored.append(error)
    del part
    assert alive() is not None, "the frames keep the object"
    forget_frames(stored[0])
    assert alive() is None
