"""``clearance``: train, audit and compare image classifiers for how clearly they separate what they see."""

import sys
from importlib.metadata import version
from typing import Any

import tyro

from clearance._checks import check_choice
from clearance.cli.audit import AuditCommand
from clearance.cli.check import CheckCommand
from clearance.cli.compare import CompareCommand
from clearance.cli.explore import ExploreCommand
from clearance.cli.list import ListCommand
from clearance.cli.report import ReportCommand
from clearance.cli.search import SearchCommand
from clearance.cli.train import TrainCommand

COMMANDS: dict[str, Any] = {
    "compare": CompareCommand,
    "train": TrainCommand,
    "audit": AuditCommand,
    "explore": ExploreCommand,
    "check": CheckCommand,
    "report": ReportCommand,
    "search": SearchCommand,
    "list": ListCommand,
}

DESCRIPTION = (
    "Train, audit and compare image classifiers for how clearly they separate what they see. "
    "--version, alone, tells the versions."
)
USAGE, INTERRUPTED = 2, 130
KEEPS_RUNS = ("compare", "train", "search")


def main(arguments: list[str] | None = None) -> None:
    """Parse, run one command, and turn what users can mend into one line."""
    words = sys.argv[1:] if arguments is None else arguments
    if words == ["--version"]:
        told = ", ".join(f"{name} {version(name)}" for name in ("torch-clearance", "torch"))
        sys.stdout.write(f"{told}, Python {sys.version.split()[0]}\n")
        return
    try:
        if words and not words[0].startswith("-"):
            check_choice("command", words[0], COMMANDS)
        tyro.extras.subcommand_cli_from_dict(
            COMMANDS,
            prog="clearance",
            description=DESCRIPTION,
            args=words,
            config=(tyro.conf.OmitArgPrefixes, tyro.conf.FlagCreatePairsOff),
        ).run()
    except (ValueError, TypeError, OSError) as error:
        sys.stderr.write(f"clearance: {error}\n")
        sys.exit(USAGE)
    except KeyboardInterrupt:
        goes_on = " The same command goes on where it stood." if words and words[0] in KEEPS_RUNS else ""
        sys.stderr.write(f"\nclearance: interrupted.{goes_on}\n")
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    main()
