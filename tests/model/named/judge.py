"""The guarantees about names, found in the log and the outputs of a run alone."""

from collections.abc import Iterator

from tests.model.named.history import (
    ATTEMPTS,
    CONTROLS,
    NOBODY,
    PERIOD,
    SCHEDULES,
    Answered,
    Kind,
    Released,
    World,
    Written,
    due_of,
    wait,
)


class Judge:
    """Finds broken guarantees in a run, once every pending schedule has left."""

    def __init__(self, world: World) -> None:
        self._log = world.log
        self._written_behind = world.written_behind
        self._released: dict[int, list[tuple[int, Released]]] = {}
        self._answered: dict[int, list[tuple[int, Answered]]] = {}
        self._cancelled: dict[int, list[int]] = {}
        for place, output in enumerate(world.outputs):
            if isinstance(output, Released):
                self._released.setdefault(output.offset, []).append((place, output))
            else:
                self._answered.setdefault(output.offset, []).append((place, output))
                for offset in output.cancelled:
                    self._cancelled.setdefault(offset, []).append(output.offset)
        self._followers: dict[int, list[int]] = {}
        for offset, record in enumerate(self._log):
            if record.kind is Kind.SCHEDULE and record.follows != NOBODY:
                self._followers.setdefault(record.follows, []).append(offset)

    def broken(self) -> Iterator[str]:
        """Describe each broken guarantee, with the offset where it shows."""
        for offset, record in enumerate(self._log):
            if record.kind in SCHEDULES:
                yield from self._fate(offset)
                yield from self._times(offset, record)
            if record.kind in CONTROLS:
                yield from self._answer(offset, record)
            if record.kind is Kind.ATTEMPT:
                yield from self._attempt(offset, record)

    def _fate(self, offset: int) -> Iterator[str]:
        released, cancelled = self._released.get(offset, []), self._cancelled.get(offset, [])
        if len(released) + len(cancelled) != 1:
            yield f"{offset} was released {len(released)} times and cancelled by {cancelled}"

    def _times(self, offset: int, record: Written) -> Iterator[str]:
        """Compare the time of release with the due time, and the due time of the next occurrence with a count."""
        for _, released in self._released.get(offset, []):
            if released.time < due_of(self._log, offset):
                yield f"{offset} is early"
            due = [self._log[each].due for each in self._followers.get(offset, [])]
            wanted = self._next_due(record, released.time)
            if due != wanted:
                yield f"the next occurrence after {offset} is due at {due}, not {wanted}"

    def _next_due(self, record: Written, released: int) -> list[int]:
        if not record.more:
            return []
        origin = self._log[record.follows]
        asked = record.sent if record.follows == NOBODY else origin.sent if origin.kind is Kind.MOVE else NOBODY
        due = record.due + PERIOD
        while due < asked or (not record.takes_all and due < released):
            due += PERIOD
        return [due]

    def _answer(self, offset: int, record: Written) -> Iterator[str]:
        answers = self._answered.get(offset, [])
        if len(answers) != 1:
            yield f"control {offset} has {len(answers)} receipts"
            return
        place, answer = answers[0]
        if record.kind is Kind.MOVE:
            yield from self._move(offset, record, answer)
        behind = [each for each in answer.cancelled if self._root(each, offset) >= offset]
        if behind and record.kind is not Kind.QUERY:
            yield f"control {offset} cancels {behind}, which it does not stand behind"
        for each, releases in self._released.items():
            if releases[0][0] > place and self._stands_for(answer, record, each):
                yield f"{each} left after control {offset} had cancelled it"

    def _move(self, offset: int, record: Written, answer: Answered) -> Iterator[str]:
        written = self._followers.get(offset, [])
        wanted = bool(answer.cancelled) and offset not in self._cancelled
        if len(written) != wanted or any(self._log[each].due != record.due for each in written):
            yield f"move {offset} of {answer.cancelled} has written {written}"

    def _stands_for(self, answer: Answered, control: Written, schedule: int) -> bool:
        """Say whether a control is about a schedule: one in front of it, or one that follows from such a schedule.

        A query is also about each matching record that the router had written before, wherever it lies in the log.
        """
        if control.kind is Kind.QUERY:
            was_there = schedule < answer.offset or self._written_behind.get(schedule, answer.behind) < answer.behind
            return was_there and control.due <= due_of(self._log, schedule) < control.due_to
        return self._log[schedule].id == control.id and self._root(schedule, answer.offset) < answer.offset

    def _root(self, schedule: int, control: int) -> int:
        """Return the first record in front of the control that the schedule follows from; itself if there is none."""
        while schedule > control and self._log[schedule].follows not in (NOBODY, control):
            schedule = self._log[schedule].follows
        return schedule

    def _attempt(self, offset: int, record: Written) -> Iterator[str]:
        is_last = record.attempt >= ATTEMPTS
        for _, released in self._released.get(offset, []):
            if released.is_dead != is_last:
                yield f"{offset}, with {record.attempt} attempts, left for the wrong topic"
            if not is_last and released.time < record.sent + wait(record.attempt) * 3 // 4:
                yield f"{offset} has not waited"
