"""Options of formats, some of them secret, and the causes behind Spark's errors; without Spark."""

from pathlib import Path

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from index.errors import ConfigError
from spark_backfill.errors import JobError
from spark_backfill.formats import FormatOptions, in_a_sentence, options_of, remedy, require_here, sentence


def test_a_missing_file_of_this_machine_is_told_before_spark_begins(tmp_path: Path) -> None:
    there, missing = tmp_path / "there.csv", str(tmp_path / "missing.csv")
    there.touch()
    with pytest.raises(ConfigError, match="there is no such file or directory"):
        require_here(missing, "csv", ["spark.master=local[2]"], {})
    require_here(str(there), "csv", [], {})
    # Spark itself has to look for these.
    for source, kind in (
        (f"{tmp_path}/*.csv", "csv"),
        (f"file:{missing}", "csv"),
        ("a_table", "table"),
        (None, "jdbc"),
    ):
        require_here(source, kind, [], {})
    for conf in ("spark.master=k8s://x", "spark.hadoop.fs.defaultFS=hdfs://x"):
        require_here(missing, "csv", [conf], {})
    require_here(missing, "csv", [], {"HADOOP_CONF_DIR": "/etc/hadoop"})


def test_secrets_come_from_files_and_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("hunter2\n")
    found = options_of(["url=jdbc:x:y=z"], [f"password={file}"], ["user=DB_USER"], {"DB_USER": "scott"})
    assert found.values == {"url": "jdbc:x:y=z", "password": "hunter2", "user": "scott"}
    assert found.hidden("scott has hunter2 for jdbc:x:y=z") == "*** has *** for jdbc:x:y=z"


def test_a_secret_within_another_leaves_nothing() -> None:
    found = options_of([], [], ["a=A", "b=B", "c=C"], {"A": "hunter", "B": "hunter2", "C": ""})
    assert found.hidden("hunter2, hunter") == "***, ***"


@pytest.mark.parametrize(
    ("given", "files", "variables", "message"),
    [
        (["a"], [], [], "--option 'a': written KEY=VALUE"),
        ([], ["a"], [], "--option-file 'a': written KEY=VALUE"),
        ([], ["a=/none"], [], "--option-file a=/none: the file cannot be read"),
        ([], [], ["a=NONE"], "--option-env a=NONE: there is no such variable"),
        (["a=1"], [], ["a=SOME"], "option 'a' is given by two"),
    ],
)
def test_options_that_cannot_be_read(given: list[str], files: list[str], variables: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        options_of(given, files, variables, {"SOME": "thing"})


@pytest.mark.parametrize(
    ("kind", "said", "wanted"),
    [
        (
            "avro",
            "Failed to find data source: avro. Avro is built-in but external",
            "packages=org.apache.spark:spark-avro",
        ),
        (
            "delta",
            "[DATA_SOURCE_NOT_FOUND] Failed to find the data source: delta.",
            "packages=io.delta:delta-spark_2.13",
        ),
        ("icberg", "[DATA_SOURCE_NOT_FOUND] Failed to find the data source", "did you mean iceberg?"),
        ("mongodb", "[DATA_SOURCE_NOT_FOUND] Failed to find the data source", "class path. Add its jar"),
        ("jdbc", ": java.sql.SQLException: No suitable driver\n\tat x", "--option driver=CLASS"),
        ("jdbc", ": java.lang.ClassNotFoundException: org.a.Driver\n\tat x", "class org.a.Driver is not on"),
        ("orc", ': x.UnsupportedFileSystemException: No FileSystem for scheme "foo"', "no file system for foo:"),
    ],
)
def test_what_is_missing_is_named_with_the_remedy(kind: str, said: str, wanted: str) -> None:
    found = remedy(kind, said)
    assert found is not None
    assert wanted in found
    assert "--conf spark.jars=FILE" in found
    assert "\n" not in found


def test_other_errors_have_no_remedy_and_one_line() -> None:
    said = "An error occurred while calling o5.load.\n: java.sql.SQLException: outer\n\tat a.b(C.java:1)\n"
    said += "Caused by: org.x.Deep$Error: Login denied for scott/hunter2\n\tat c.d\n\t... 30 more"
    assert remedy("jdbc", said) is None
    assert sentence(said) == "Login denied for scott/hunter2"
    assert sentence("[A_CODE] Something is wrong.\nJVM stacktrace") == "[A_CODE] Something is wrong."
    assert sentence("") == "Spark does not say why"


def test_an_error_is_told_without_secrets_and_without_what_raised_it() -> None:
    options = FormatOptions({"password": "hunter2"}, frozenset({"password"}))
    with pytest.raises(JobError) as caught, in_a_sentence("orders", "jdbc", options):
        raise PySparkException("denied for hunter2")
    assert str(caught.value) == "orders (--format jdbc): denied for ***"
    assert caught.value.__suppress_context__
    with pytest.raises(ConfigError), in_a_sentence("orders", "jdbc", options):
        raise PySparkException("No suitable driver")
    with pytest.raises(Py4JError), in_a_sentence("orders", "jdbc", options):
        raise Py4JError("the JVM is gone")
