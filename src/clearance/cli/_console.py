"""The console of every command: what it prints is text, never markup."""

import os
import sys
from typing import IO, Any

import rich.console
from rich.text import Text

from clearance._text import visible


class Console(rich.console.Console):
    r"""A console on which a name such as ``[/x]`` is printed as it is, and none steers the terminal.

    >>> console = Console()
    >>> with console.capture() as printed:
    ...     console.print("[/x] \x1b[2J :bomb:")
    >>> printed.get()
    '[/x] \\x1b[2J :bomb:\n'
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, highlight=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        """Text to print, line by line visible."""
        return super().render_str("\n".join(map(visible, text.split("\n"))), **options)

    def on_broken_pipe(self) -> None:
        """Where no one reads any more, print nothing and go on: the command keeps its own status."""
        self.quiet = True
        silence(self.file)


def write_out(text: str) -> None:
    """Write to standard output; where no one reads any more, the command goes on and keeps its own status."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        silence(sys.stdout)


def silence(stream: IO[str]) -> None:
    """Let what is written from now on go nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def plain(text: str, style: str = "") -> Text:
    """Text for a place that would take a string for markup."""
    return Text(visible(text), style=style)
