"""``clearance``: train, audit and compare image classifiers."""

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

DESCRIPTION = "Train, audit and compare PyTorch image classifiers. --version prints the versions."
USAGE, INTERRUPTED = 2, 130
KEEPS_RUNS = ("compare", "train", "search")


def main(arguments: list[str] | None = None) -> None:
    """Parse, run one command, and turn errors that users can fix into one line."""
    words = sys.argv[1:] if arguments is None else arguments
    if words == ["--version"]:
        versions = ", ".join(f"{name} {version(name)}" for name in ("torch-clearance", "torch"))
        sys.stdout.write(f"{versions}, Python {sys.version.split()[0]}\n")
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
        resumes = " The same command resumes." if words and words[0] in KEEPS_RUNS else ""
        sys.stderr.write(f"\nclearance: interrupted.{resumes}\n")
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    main()
