"""The findings of ``check`` about targets whose brokers overwrite the timestamps that records should get."""

from sidecar.cluster.topics.findings import Finding, Level
from sidecar.operations.asking.checking import timestamp_findings
from sidecar.policies.timestamps import Stamp

BY_BROKERS = {"message.timestamp.type": "LogAppendTime"}
BY_PRODUCERS = {"message.timestamp.type": "CreateTime"}


def found(settings: dict[str, dict[str, str] | None], *stamped: Stamp) -> list[Finding]:
    return [*timestamp_findings("b:1", stamped, settings)]


def test_time_of_appending_is_warned_of_with_the_command_that_mends_it() -> None:
    by_policy = Stamp("d", "out", "due", "policy target/out")
    assert found({"out": BY_BROKERS}, by_policy, Stamp("e", "out", "source", "configuration")) == [
        Finding(
            Level.WARN,
            "target topic out",
            f"message.timestamp.type=LogAppendTime: brokers overwrite the {what}",
            "kafka-configs.sh --bootstrap-server b:1 --alter --entity-type topics --entity-name out"
            " --add-config message.timestamp.type=CreateTime",
            topic,
        )
        for topic, what in (
            ("d", 'due time that d stamps (timestamp = "due", policy target/out)'),
            ("e", 'time of sending that e stamps (timestamp = "source", configuration)'),
        )
    ]


def test_others_are_not_worth_a_word() -> None:
    stamped = [Stamp("d", target, "due", "configuration") for target in ("kept", "denied", "missing")]
    assert found({"kept": BY_PRODUCERS, "denied": None, "else": BY_BROKERS}, *stamped) == []
