"""``clearance``: train, audit and compare image classifiers for how clearly they separate what they see."""

import sys
from typing import Annotated

import tyro

from clearance.cli.audit import AuditCommand
from clearance.cli.compare import CompareCommand
from clearance.cli.list import ListCommand
from clearance.cli.report import ReportCommand
from clearance.cli.search import SearchCommand
from clearance.cli.train import TrainCommand

Command = (
    Annotated[CompareCommand, tyro.conf.subcommand("compare")]
    | Annotated[TrainCommand, tyro.conf.subcommand("train")]
    | Annotated[AuditCommand, tyro.conf.subcommand("audit")]
    | Annotated[ReportCommand, tyro.conf.subcommand("report")]
    | Annotated[SearchCommand, tyro.conf.subcommand("search")]
    | Annotated[ListCommand, tyro.conf.subcommand("list")]
)

USAGE, INTERRUPTED = 2, 130


def main(arguments: list[str] | None = None) -> None:
    """Parse, run one command, and turn what users can mend into one line."""
    command = tyro.cli(
        Command,
        prog="clearance",
        description="Train, audit and compare image classifiers for how clearly they separate what they see.",
        args=arguments,
        config=(tyro.conf.OmitArgPrefixes, tyro.conf.FlagCreatePairsOff),
    )
    try:
        command.run()
    except (ValueError, TypeError, OSError) as error:
        sys.stderr.write(f"clearance: {error}\n")
        sys.exit(USAGE)
    except KeyboardInterrupt:
        sys.stderr.write("\nclearance: interrupted. The same command goes on where it stood.\n")
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    main()
