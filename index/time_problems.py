"""Problems of a due time in relation to the timestamp of its record."""

from index.controls import AFTER_BIT, AT_BIT
from index.receipts import Action, Control
from index.schedule import AT_ONCE, BY_KEY, KEEP_KEY, Reason, Rejection, Schedule
from index.times import INT64_MAX


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


def leaving_nothing(
    control: Control, times: int, at_ms: int | None, after_ms: int | None, timestamp_ms: int, limit_ms: int
) -> tuple[Schedule, list[Rejection]]:
    """Return the schedule of a control that is not released, and the problems of the due time in a move.

    ``limit_ms`` is the longest delay of any target: the targets of the moved schedule are not known here.
    """
    if control.action is not Action.MOVE:
        return Schedule(AT_ONCE, (), BY_KEY, KEEP_KEY, control.deliver_id, both_times=False), []
    due_ms = at_ms if at_ms is not None else timestamp_ms + (after_ms or 0)
    moving = Schedule(due_ms, (), BY_KEY, KEEP_KEY, control.deliver_id, times == AT_BIT | AFTER_BIT)
    return moving, problems_of_times(times, due_ms, timestamp_ms, limit_ms)
