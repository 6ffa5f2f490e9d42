"""The columns of a table of schedules, and the counts of its rows, without Spark."""

import pytest

from index.errors import ConfigError
from index.protocol.schedule import Reason
from spark_backfill.errors import JobError
from spark_backfill.schedule.columns import checked, parse_mapping
from spark_backfill.schedule.ledger import NOT_BEGUN, RowsDone, check_same_rows
from spark_backfill.schedule.row import Decision, InputRow
from spark_backfill.schedule.survey import SAMPLES, Route, RowSurvey, merged

TYPES = {
    "due": "timestamp",
    "target": "string",
    "key": "string",
    "value": "binary",
    "headers": "map<string,string>",
    "n": "int",
}


def test_a_table_that_has_everything() -> None:
    found = checked(TYPES, parse_mapping([]), [], "n")
    assert found == {name: name for name in ("due", "target", "key", "value", "headers")} | {"id": "n"}


def test_columns_under_other_names_and_none_at_all() -> None:
    types = {"fire at": "bigint", "body": "string"}
    mapping = parse_mapping(["due=fire at", "value=body"])
    assert checked(types, mapping, ["key", "target", "headers"], None) == {"due": "fire at", "value": "body"}


@pytest.mark.parametrize("name", ["due", "target", "key", "value", "headers"])
def test_a_missing_column_is_named_with_the_remedy(name: str) -> None:
    types = {column: kind for column, kind in TYPES.items() if column != name}
    with pytest.raises(ConfigError, match=f"column '{name}' is missing; name it with --column {name}=") as caught:
        checked(types, parse_mapping([]), [], None)
    assert (f"--without {name}" in str(caught.value)) == (name in {"target", "key", "headers"})
    assert "The table has: " in str(caught.value)


def test_a_misspelt_column_is_guessed() -> None:
    types = {"Due_": "timestamp", "vlaue": "string", "number": "bigint"}
    for mapping, without, id_column, message in (
        (
            [],
            ["target", "key", "headers"],
            None,
            r"column 'due' is missing; did you mean Due_\? Then --column due=Due_\.",
        ),
        (["due=Due_"], ["target", "key", "headers"], None, r"did you mean vlaue\? Then --column value=vlaue"),
        (["due=Due_", "value=vlaue"], ["target", "key", "headers"], "numbr", r"--id numbr: .*, did you mean number\?"),
    ):
        with pytest.raises(ConfigError, match=message):
            checked(types, parse_mapping(mapping), without, id_column)


def test_whole_numbers_of_databases() -> None:
    without = ["target", "key", "headers"]
    types = {"due": "decimal(38,0)", "value": "string", "n": "decimal(20,0)"}
    assert checked(types, parse_mapping([]), without, "n")["id"] == "n"
    with pytest.raises(ConfigError, match="is of type decimal"):
        checked(types | {"due": "decimal(38,10)"}, parse_mapping([]), without, None)


@pytest.mark.parametrize(
    ("name", "kind", "remedy"),
    [
        ("due", "timestamp_ntz", "no time zone"),
        ("due", "int", "timestamp_seconds"),
        ("due", "date", "not an instant"),
        ("due", "double", "bigint of epoch milliseconds"),
        ("target", "int", "string"),
        ("key", "bigint", "cast it to string or binary"),
        ("value", "struct<a:int>", "to_json"),
        ("headers", "map<string,int>", "map<string,string>"),
        ("headers", "struct<a:string>", "string of JSON"),
    ],
)
def test_a_wrong_type_is_named_with_the_remedy(name: str, kind: str, remedy: str) -> None:
    with pytest.raises(ConfigError) as caught:
        checked(TYPES | {name: kind}, parse_mapping([]), [], None)
    assert f"column '{name}' ({name}) is of type {kind}" in str(caught.value)
    assert remedy in str(caught.value)


def test_wrong_options_are_named() -> None:
    for given in ("due", "due=", "when=due", "=x"):
        with pytest.raises(ConfigError, match="--column"):
            parse_mapping([given])
    with pytest.raises(ConfigError, match="--without due"):
        checked(TYPES, parse_mapping([]), ["due"], None)
    with pytest.raises(ConfigError, match="contradict"):
        checked(TYPES | {"k": "string"}, parse_mapping(["key=k"]), ["key"], None)
    with pytest.raises(ConfigError, match="--id nr: the table has no such column"):
        checked(TYPES, parse_mapping([]), [], "nr")


def decision(number: int, reason: str = "", *, past: bool = False, targets: tuple[str, ...] = ("t",)) -> Decision:
    return Decision(number.to_bytes(16, "big")[::-1], number % 2, (), reason, "why", past, targets, -1)


def survey(*decisions: Decision) -> RowSurvey:
    found = RowSurvey()
    for each in decisions:
        found.add(InputRow("1", "t", b"secret"[:1], b"private"), each)
    return found


def test_surveys_of_tasks_add_up_however_rows_are_dealt_out() -> None:
    rows = [decision(n, past=n % 3 == 0, targets=("a", "b") if n % 2 else ("t",)) for n in range(20)]
    rows += [decision(n, Reason.INVALID_SCHEDULE) for n in range(20, 40)]
    whole = survey(*rows)
    parts = merged(RowSurvey.from_json(survey(*rows[at::3]).to_json()) for at in (2, 0, 1))
    assert (parts.rows, parts.valid, parts.invalid, parts.past) == (40, 20, 20, 7)
    assert (parts.partitions, parts.routes, parts.past_routes) == (whole.partitions, whole.routes, whole.past_routes)
    assert len(parts.samples["INVALID_SCHEDULE"]) == SAMPLES
    assert "private" not in str(parts.samples)
    assert parts.partitions != survey(*rows[1:], decision(41)).partitions


def test_rows_for_unknown_targets_become_invalid() -> None:
    found = survey(decision(1), decision(2, past=True), decision(3, targets=("gone",)), decision(4, past=True))
    found.refuse({Route(("t",), -1): "t does not exist", Route(("other",), -1): "not asked for"})
    assert (found.rows, found.valid, found.invalid, found.past) == (4, 1, 3, 0)
    assert found.samples == {"TARGET_UNKNOWN": ["3 rows: t does not exist"]}


def test_a_job_goes_on_only_with_the_rows_it_began_with() -> None:
    wanted = {0: "2.a.b", 1: "1.c.d"}
    check_same_rows("job", "t", wanted, {0: NOT_BEGUN, 1: RowsDone(1, "1.c.d")})
    with pytest.raises(JobError, match="delay partition 1, and they are of another"):
        check_same_rows("job", "t", wanted, {0: RowsDone(2, "2.a.b"), 1: RowsDone(1, "1.c.e")})
    with pytest.raises(JobError, match="delay partition 2, and they are of another"):
        check_same_rows("job", "t", wanted, {2: RowsDone(1, "1.c.d")})


def test_a_job_goes_on_only_behind_rows_of_the_same_reading() -> None:
    """Release 0.1.0 wrote no fingerprint of the rows done: these are taken for the first ones."""
    wanted = {0: "2.a.b"}
    for accepted in RowsDone(2, "2.a.b"), RowsDone(2, "2.a.b", "2.a.b"), RowsDone(1, "2.a.b", "1.9.9"):
        check_same_rows("job", "t", wanted, {0: accepted})
    for refused in RowsDone(2, "2.a.b", "2.a.c"), RowsDone(3, "2.a.b", "3.a.b"), RowsDone(3, "2.a.b"):
        with pytest.raises(JobError, match="rows of delay partition 0, and they are not the first ones") as caught:
            check_same_rows("job", "t", wanted, {0: refused})
        assert """delay-router cancel t --where '{"id_prefix": "job/"}'""" in str(caught.value)
