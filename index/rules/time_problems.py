"""Problems of a due time in relation to the timestamp of its record."""

from index.protocol.schedule import Action, Control, Reason, Rejection
from index.protocol.times import INT64_MAX
from index.rules.controls import AFTER_BIT


def problems_of_times(times: int, due_ms: int, timestamp_ms: int, limit_ms: int) -> list[Rejection]:
    """Return every problem of a due time.

    ``times`` has the bits of the given time headers. ``limit_ms`` is the longest delay, 0 for no limit.
    """
    if timestamp_ms < 0:
        if times == AFTER_BIT or (times and limit_ms):
            counted = "deliver-after" if times == AFTER_BIT else "the maximum delay"
            message = f"the record has no timestamp, from which {counted} is counted"
            return [Rejection(Reason.INVALID_SCHEDULE, message)]
    elif due_ms > INT64_MAX:
        message = f"the due time, {timestamp_ms} + {due_ms - timestamp_ms} ms, is over {INT64_MAX}"
        return [Rejection(Reason.INVALID_SCHEDULE, message)]
    elif limit_ms and due_ms - timestamp_ms > limit_ms:
        message = f"Exceeds max allowed delivery delay of {limit_ms} milliseconds"
        return [Rejection(Reason.MAX_DELAY_EXCEEDED, message)]
    return []


def timed(
    control: Control, times: int, at_ms: int | None, after_ms: int | None, timestamp_ms: int, limit_ms: int
) -> tuple[Control, list[Rejection]]:
    """Return a control that becomes no schedule with the due time that it gives another, and the problems of that time.

    ``limit_ms`` is the longest delay of any target: the target of the other schedule is only known where that lies.
    """
    if control.action is not Action.MOVE:
        return control, []
    due_ms = at_ms if at_ms is not None else timestamp_ms + (after_ms or 0)
    return control._replace(due_ms=due_ms), problems_of_times(times, due_ms, timestamp_ms, limit_ms)
