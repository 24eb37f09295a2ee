"""``clearance``: train, audit and compare image classifiers."""

import sys
from importlib.metadata import version
from typing import Any

import tyro

from clearance._checks import check_choice
from clearance.cli._console import silence
from clearance.cli._ending import one_line_errors
from clearance.cli.audit import AuditCommand
from clearance.cli.check import CheckCommand
from clearance.cli.compare import CompareCommand
from clearance.cli.diff import DiffCommand
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
    "diff": DiffCommand,
    "check": CheckCommand,
    "report": ReportCommand,
    "search": SearchCommand,
    "list": ListCommand,
}

DESCRIPTION = "Train, audit and compare PyTorch image classifiers. --version prints the versions."
KEEPS_RUNS = ("compare", "train", "search")


def main(arguments: list[str] | None = None) -> None:
    """Parse, run one command, and turn errors that users can fix into one line."""
    words = sys.argv[1:] if arguments is None else arguments
    if words == ["--version"]:
        versions = ", ".join(f"{name} {version(name)}" for name in ("torch-clearance", "torch"))
        sys.stdout.write(f"{versions}, Python {sys.version.split()[0]}\n")
        return
    with one_line_errors("clearance", resumes=bool(words) and words[0] in KEEPS_RUNS):
        config = (tyro.conf.OmitArgPrefixes, tyro.conf.FlagCreatePairsOff)
        try:
            if not words or words[0].startswith("-"):
                command = tyro.extras.subcommand_cli_from_dict(
                    COMMANDS, prog="clearance", description=DESCRIPTION, args=words, config=config
                )
            else:  # only this command is parsed, so that an error names no option of another
                check_choice("command", words[0], COMMANDS)
                command = tyro.cli(
                    COMMANDS[words[0]], prog=f"clearance {words[0]}", args=words[1:], config=config
                )
        except BrokenPipeError:  # --help, of which no one reads the rest
            silence(sys.stdout)
            return
        command.run()


if __name__ == "__main__":
    main()
