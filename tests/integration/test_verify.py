"""Tests of ``verify``: a healthy topic is whole, and each damage of a stored partition is named with its remedy."""

import json
from random import Random
from typing import Any, Final

from click.testing import CliRunner, Result

from sidecar.cli.program import cli
from tests.integration.damaging import exchange, garble, remove
from tests.integration.router_process import RouterProcess
from tests.integration.scenario import Stage, now_ms, wait_until
from tests.integration.stored_buckets import delete_records, state, truncate

BUCKETS: Final[dict[str, Any]] = {"seal_records": 50, "seal_age": "1s", "segment_records": 20, "max_buckets": 50}
HOUR_MS: Final = 3_600_000
RECORDS: Final = 150
GARBLED, EXCHANGED, REMOVED, LOST, WHOLE = range(5)


def verify(router: RouterProcess, place: str, *options: str) -> Result:
    return CliRunner().invoke(cli, ["verify", place, *options, "--config", str(router.config)])


def said_of(router: RouterProcess, place: str) -> dict[str, Any]:
    """Return the report of one damaged partition."""
    done = verify(router, place, "--json")
    assert done.exit_code == 1, done.output
    (report,) = json.loads(done.stdout)
    assert report["partition"] == place
    assert report["damages"], report
    return dict(report)


def is_sealed(stage: Stage, delay: str, partition: int) -> bool:
    progress = state(stage, delay, partition).progress
    return progress.sealed_to == progress.cursor >= RECORDS


def test_damage_is_found_where_it_is(stage: Stage, rng: Random) -> None:
    out = stage.target()
    delay = stage.delay("delay", 5, default_target=out, placement="inline", **BUCKETS)
    pointers = stage.delay("pointers", default_target=out, placement="pointer", **BUCKETS)
    places = [*((delay, partition) for partition in range(5)), (pointers, 0)]
    with stage.router() as router:
        router.start_and_wait()
        began_ms = now_ms()
        for name, partition in places:
            for number in range(RECORDS):
                due = b"%d" % (began_ms + HOUR_MS + rng.randrange(HOUR_MS))
                stage.post(name, ("deliver-at", due), ("deliver-id", b"%d" % number), value=b"v", partition=partition)
        stage.flush()
        wait_until(lambda: all(is_sealed(stage, *place) for place in places), "all is in buckets")
        whole = verify(router, delay)
        assert whole.exit_code == 0, whole.output
        assert whole.stdout.count(": whole: ") == 5
        assert verify(router, pointers).exit_code == 0
        assert router.stop() == 0

        garble(stage, delay, GARBLED)
        exchange(stage, delay, EXCHANGED)
        remove(stage, delay, REMOVED)
        garble(stage, delay, LOST)
        delete_records(stage, delay, LOST, RECORDS - 1)

        damaged = said_of(router, f"{delay}/{GARBLED}")
        assert len(damaged["damages"]) == damaged["stored"]["segments"]
        assert {each["why"] for each in damaged["damages"]} == {"checksum does not match: the value is damaged"}
        assert all(each["remedy"].startswith("nothing is lost: ") for each in damaged["damages"])
        exchanged = said_of(router, f"{delay}/{EXCHANGED}")
        assert all("and the manifest says" in each["why"] for each in exchanged["damages"])
        removed = said_of(router, f"{delay}/{REMOVED}")
        assert all("has nothing that can be read at offset" in each["why"] for each in removed["damages"])
        assert len(removed["damages"]) == removed["stored"]["segments"] + removed["stored"]["id_pages"]
        lost = said_of(router, f"{delay}/{LOST}")
        assert f"delay-router start-over {delay}/{LOST}" in lost["damages"][0]["remedy"]
        assert verify(router, f"{delay}/{WHOLE}").exit_code == 0

        everything = verify(router, delay)
        assert everything.exit_code == 1
        assert f"ok    {delay}/{WHOLE}: whole: " in everything.stdout
        assert f"mend: restore {delay}.delay-snapshots" in everything.stdout

        delete_records(stage, pointers, 0, RECORDS // 2)
        gone = said_of(router, f"{pointers}/0")
        assert all(f"begins at offset {RECORDS // 2}" in each["why"] for each in gone["damages"])
        last = max(each.offset for each in stage.records(f"{pointers}.delay-state"))
        truncate(stage, pointers, last)
        (cut,) = said_of(router, f"{pointers}/0")["damages"]
        assert cut["thing"] == f"state {pointers}.delay-state/0"
        assert "part of the state was lost" in cut["why"]
        assert "python -m spark_backfill rebuild" in cut["remedy"]


def test_a_partition_or_topic_that_does_not_exist_could_not_be_looked_at(stage: Stage) -> None:
    delay = stage.delay(default_target=stage.target())
    router = stage.router()
    assert verify(router, delay).exit_code == 0
    assert f"ok    {delay}/0: whole: 0 buckets" in verify(router, delay).stdout
    beyond = verify(router, f"{delay}/1")
    assert (beyond.exit_code, "has partitions 0 to 0" in beyond.stderr) == (2, True)
    unknown = verify(router, "no-topic")
    assert (unknown.exit_code, "is not a configured delay topic" in unknown.stderr) == (2, True)
