"""Tests the writer of a delay partition without Spark: after any interruption and a restart, every row exists once."""

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from spark_backfill import cluster
from spark_backfill.errors import JobError
from spark_backfill.schedule.begun import begun_under
from spark_backfill.schedule.ledger import Ledger, RowsDone, group_name
from spark_backfill.schedule.row import InputRow, digest_of
from spark_backfill.schedule.survey import Fingerprint
from spark_backfill.schedule.write import Sorted, WriteTarget, WrittenRows, write
from tests.integration.scenario import Stage, header
from tests.spark.backfill import settings_of

ROWS = 57


class Killed(Exception):
    """The task ends here."""


def make_rows(count: int = ROWS, partition: int = 0) -> list[Sorted]:
    made = [InputRow(str(number), None, b"k%d" % number, b"%d" % number) for number in range(count)]
    # One row three times, and one that must not be written.
    rows = [Sorted(partition, digest_of(row), row.value != b"7", row.key, row.value, ()) for row in made]
    return sorted([*rows, rows[3], rows[3]], key=lambda row: row.digest)


def target(stage: Stage, topic: str, rows: list[Sorted], *, batch: int = 10) -> WriteTarget:
    fingerprints: dict[int, Fingerprint] = {}
    for row in rows:
        fingerprints.setdefault(row.partition, Fingerprint()).add(row.digest)
    texts = {partition: each.text() for partition, each in fingerprints.items()}
    return WriteTarget(dict(stage.kafka), stage.group_id, "job", topic, texts, batch, 1_000_000)


def until(rows: Iterable[Sorted], count: int) -> Iterator[Sorted]:
    for number, row in enumerate(rows):
        if number == count:
            raise Killed
        yield row


def ids(stage: Stage, topic: str) -> Counter[bytes | None]:
    return Counter(header(record, "deliver-id") for record in stage.records(topic))


def test_written_again_nothing_is_written_twice(stage: Stage) -> None:
    topic = stage.delay(partitions=2)
    rows = [*make_rows(), *make_rows(5, 1)]
    assert list(write(target(stage, topic, rows), rows)) == [WrittenRows(0, ROWS + 1, 1, 0), WrittenRows(1, 7, 0, 0)]
    found = ids(stage, topic)
    assert len(found) == ROWS + 1 + 7 - 7  # the rows of partition 1 are equal to some of partition 0
    assert list(write(target(stage, topic, rows), rows)) == [WrittenRows(0, 0, 0, ROWS + 2), WrittenRows(1, 0, 0, 7)]
    assert ids(stage, topic) == found


def test_equal_rows_are_told_apart(stage: Stage) -> None:
    topic = stage.delay()
    rows = make_rows()
    list(write(target(stage, topic, rows), rows))
    threefold = [record for record in stage.records(topic) if record.value == b"3"]
    found = sorted(str(header(record, "deliver-id")) for record in threefold)
    assert [text.rpartition("'")[0].count("/") for text in found] == [1, 2, 2]
    assert len(set(found)) == 3


@pytest.mark.parametrize("at", [0, 1, 9, 10, 11, 35, ROWS + 1])
def test_a_task_that_ends_anywhere_is_gone_on_with(stage: Stage, at: int) -> None:
    topic = stage.delay()
    rows = make_rows()
    with pytest.raises(Killed):
        list(write(target(stage, topic, rows), until(rows, at)))
    (done,) = write(target(stage, topic, rows, batch=7), rows)
    assert done.before == at // 10 * 10
    assert set(ids(stage, topic).values()) == {1}
    assert len(ids(stage, topic)) == ROWS + 1


@pytest.mark.parametrize("pause_s", [0.0, 1.0])
def test_who_comes_later_takes_over(stage: Stage, pause_s: float) -> None:
    """The former writer learns it from a commit, or after a pause from the next row it produces."""
    topic = stage.delay()
    rows = make_rows()

    def overtaken() -> Iterator[Sorted]:
        for number, row in enumerate(rows):
            if number == 25:
                (done,) = write(target(stage, topic, rows), rows)
                assert done == WrittenRows(0, done.written, ROWS + 2 - 20 - done.written, 20)
            if number == 27:
                time.sleep(pause_s)
            yield row

    with pytest.raises(JobError, match="another run of job job has taken over delay partition 0"):
        list(write(target(stage, topic, rows), overtaken()))
    assert set(ids(stage, topic).values()) == {1}
    assert len(ids(stage, topic)) == ROWS + 1


def test_other_rows_are_refused(stage: Stage) -> None:
    topic = stage.delay()
    rows = make_rows()
    list(write(target(stage, topic, rows), rows))
    others = make_rows(ROWS + 1)
    with pytest.raises(JobError, match="of another table"):
        list(write(target(stage, topic, others), others))
    with Ledger(stage.kafka, group_name(stage.group_id, "job"), topic, settled=True) as ledger:
        assert ledger.read([0])[0].done == ROWS + 2
    assert len(ids(stage, topic)) == ROWS + 1


def test_a_table_that_changes_while_it_is_read_is_not_finished(stage: Stage) -> None:
    topic = stage.delay()
    rows = make_rows()
    with pytest.raises(JobError, match="has changed while it was read"):
        list(write(target(stage, topic, rows), rows[:-1]))
    (done,) = write(target(stage, topic, rows), rows)
    assert done.before == 50
    assert set(ids(stage, topic).values()) == {1}
    assert len(ids(stage, topic)) == ROWS + 1


@pytest.mark.parametrize(("batch", "more"), [(1, True), (4, False), (9, True)])
def test_a_table_that_changes_and_comes_back_is_not_gone_on_with(stage: Stage, batch: int, more: bool) -> None:
    """The second reading has an early row more or less, and the next run reads the table as it was surveyed."""
    topic = stage.delay()
    rows = make_rows(7)
    early = Sorted(0, bytes(16), True, b"k", b"early", ())
    others = [early, *rows] if more else rows[1:]
    with pytest.raises(JobError, match=rf"has changed while it was read: .* \({len(others)} now\)"):
        list(write(target(stage, topic, rows, batch=batch), others))
    written = ids(stage, topic)
    assert len(written) == len(others) // batch * batch
    with pytest.raises(JobError, match="rows of delay partition 0, and they are not the first ones of this table"):
        list(write(target(stage, topic, rows, batch=batch), rows))
    assert ids(stage, topic) == written


def test_a_table_that_changed_behind_the_rows_done_is_gone_on_with(stage: Stage) -> None:
    topic = stage.delay()
    rows = make_rows()
    with pytest.raises(Killed):
        list(write(target(stage, topic, rows), until([*rows[:30], *rows[31:]], 35)))
    (done,) = write(target(stage, topic, rows), rows)
    assert done.before == 30
    assert set(ids(stage, topic).values()) == {1}
    assert len(ids(stage, topic)) == ROWS + 1


def test_a_partition_that_the_survey_did_not_see_is_not_written(stage: Stage) -> None:
    topic = stage.delay(partitions=2)
    rows = make_rows()
    with pytest.raises(JobError, match=r"rows of delay partition 1 are not those that were surveyed \(7 now\)"):
        list(write(target(stage, topic, rows, batch=1), make_rows(5, 1)))
    assert ids(stage, topic) == {}


def test_rows_done_by_the_release_before_are_gone_on_with(stage: Stage) -> None:
    """Release 0.1.0 kept the fingerprint of all rows alone."""
    topic = stage.delay()
    rows = make_rows()
    aim = target(stage, topic, rows)
    with pytest.raises(Killed):
        list(write(aim, until(rows, 35)))
    group = group_name(stage.group_id, "job")
    consumer = Consumer({**stage.kafka, "group.id": group, "enable.auto.commit": False})
    consumer.commit(offsets=[TopicPartition(topic, 0, 30, aim.fingerprints[0])], asynchronous=False)
    consumer.close()
    with Ledger(stage.kafka, group, topic, settled=True) as ledger:
        assert ledger.read([0]) == {0: RowsDone(30, aim.fingerprints[0])}
        (done,) = write(aim, rows)
        assert ledger.read([0]) == {0: RowsDone(ROWS + 2, aim.fingerprints[0], aim.fingerprints[0])}
    assert done.before == 30
    assert set(ids(stage, topic).values()) == {1}
    assert len(ids(stage, topic)) == ROWS + 1


def test_the_group_id_under_which_a_job_began_is_found(stage: Stage, tmp_path: Path) -> None:
    topic, other = stage.delay(partitions=2), stage.delay("other")
    rows = make_rows()
    list(write(target(stage, topic, rows), rows))
    list(write(target(stage, topic, rows)._replace(job="x.schedule.y"), rows))
    before = settings_of(stage, tmp_path)
    after = replace(before, group_id=f"{stage.word}.another")
    admin = cluster.connect(after)
    delay = cluster.topic(admin, topic)
    assert begun_under(before, admin, "job", delay) == begun_under(after, admin, "job", delay) == stage.group_id
    # Another job, a job whose group ends like that of this one, and the same job in another delay topic.
    assert begun_under(after, admin, "ob", delay) == after.group_id
    assert begun_under(after, admin, "y", delay) == after.group_id
    assert begun_under(after, admin, "x.schedule.y", delay) == stage.group_id
    assert begun_under(after, admin, "job", cluster.topic(admin, other)) == after.group_id
