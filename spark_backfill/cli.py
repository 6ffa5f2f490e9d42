"""The commands of ``python -m spark_backfill``: each job has a module of its own, imported when it is asked for.

Exit codes: 0 done, 1 failed or violations found, 2 wrong usage or configuration.
"""

import importlib
from typing import Final

import click

from snapshots.libraries import check_libraries
from spark_backfill import jars
from spark_backfill.cli_common import JobCommands, say

JOBS: Final = {
    "audit": "spark_backfill.audit.command",
    "export": "spark_backfill.export.command",
    "index": "spark_backfill.build.index_command",
    "rebuild": "spark_backfill.build.rebuild_command",
    "schedule": "spark_backfill.schedule.command",
}
"""The module with the command of each job, which is called ``NAME_command`` there."""


class Jobs(JobCommands):
    """Finds the command of a job without importing the other jobs."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return all names, in the order of the help text."""
        return sorted([*JOBS, *super().list_commands(ctx)])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command of that name."""
        if cmd_name not in JOBS:
            return super().get_command(ctx, cmd_name)
        command: click.Command = getattr(importlib.import_module(JOBS[cmd_name]), f"{cmd_name}_command")
        return command


@click.group(cls=Jobs, context_settings={"help_option_names": ["-h", "--help"]})
def cli() -> None:
    """Bulk work beside the delay router, on Spark: every job may be killed and run again."""
    check_libraries()


@cli.command("jars", short_help="Print the jars of Spark's Kafka connector.")
def jars_command() -> None:
    """Print the jars of Spark's Kafka connector, as spark-submit --jars takes them."""
    click.echo(",".join(str(path) for path in jars.connector_jars(say)))


def main() -> None:
    """Run the command line."""
    cli.main(prog_name="python -m spark_backfill")
