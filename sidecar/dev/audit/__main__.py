"""``python -m sidecar.dev.audit``: audits topics from the shell."""

import argparse
import sys
from collections.abc import Sequence
from fractions import Fraction

from sidecar.dev.audit import AttemptRules, AuditError, audit

RETRIES = "TOPIC=FIRST_MS,FACTOR,MAX_MS,JITTER,ATTEMPTS,DEAD_LETTER[,TARGET...]"
"""The form of a retry on the command line; the last names are those that ``delay-target`` may have."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Audit topics from the shell; return exit code 1 when any record is lost, doubled, early, altered or astray."""
    parser = argparse.ArgumentParser(
        prog="python -m sidecar.dev.audit", description="Count the fate of every record from the topics alone."
    )
    parser.add_argument("--bootstrap", required=True, metavar="HOST:PORT")
    parser.add_argument("--delay", required=True, nargs="+", metavar="TOPIC[=DEFAULT_TARGET]")
    parser.add_argument("--delays-ms", nargs="+", default=[], metavar="TOPIC=MS", help="of records that name no time")
    parser.add_argument("--retries", nargs="+", default=[], metavar=RETRIES, help="of topics that count attempts")
    parser.add_argument("--targets", required=True, nargs="+", metavar="TOPIC")
    parser.add_argument("--rejected", nargs="+", default=[], metavar="TOPIC")
    parser.add_argument("--receipts", nargs="+", default=[], metavar="TOPIC", help="without, controls count as lost")
    parser.add_argument("--grace-ms", type=int, default=10_000, help="how late is lost (default 10000)")
    given = parser.parse_args(arguments)
    delays = [each.rpartition("=") for each in given.delays_ms]
    if wrong := next((number for _, _, number in delays if not (number.isascii() and number.isdigit())), None):
        parser.error(f"--delays-ms: {wrong!r}: write TOPIC=MS, milliseconds")
    try:
        retries = dict(map(_retry, given.retries))
    except ValueError as error:
        parser.error(f"--retries: write {RETRIES}: {error}")
    defaults = dict(topic.split("=", 1) for topic in given.delay if "=" in topic)
    try:
        report = audit(
            {"bootstrap.servers": given.bootstrap},
            delay=[topic.partition("=")[0] for topic in given.delay],
            targets=given.targets,
            rejected=given.rejected,
            receipts=given.receipts,
            default_targets=defaults,
            default_delays_ms={topic: int(number) for topic, _, number in delays},
            retries=retries,
            grace_ms=given.grace_ms,
        )
    except AuditError as error:
        print(error, file=sys.stderr)
        return 1
    for name, lines in report.samples.items():
        print(*(f"{name}: {line}" for line in lines), sep="\n", file=sys.stderr)
    print(report.summary())
    return 0 if report.ok else 1


def _retry(text: str) -> tuple[str, AttemptRules]:
    topic, _, told = text.partition("=")
    first_ms, factor, max_ms, jitter, attempts, dead_letter, *allowed = told.split(",")
    terms = int(first_ms), Fraction(factor), int(max_ms), Fraction(jitter), int(attempts)
    return topic, AttemptRules(*terms, dead_letter, frozenset(allowed))


if __name__ == "__main__":
    sys.exit(main())
