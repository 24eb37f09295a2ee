"""A report's first screen, for a terminal."""

from rich.table import Table

from clearance.cli._console import Console, plain
from clearance.report import Card, comparison_table
from clearance.report.terminal import action_lines


def print_table(console: Console, card: Card) -> None:
    """Print the table of methods, the verdict in a sentence, and its caveats."""
    found = comparison_table(card.report)
    table = Table(box=None, pad_edge=False)
    for place, name in enumerate(found.columns):
        table.add_column(name, justify="left" if place == 0 else "right")
    for row in found.rows:
        table.add_row(*row)
    console.print()
    console.print(table)
    console.print()
    console.print(found.title, style="bold")
    if found.foot:
        console.print(found.foot)


def print_sentences(console: Console, card: Card) -> None:
    """Print the first sentences of one network's page, warnings in bold; the table if it has none."""
    lines = action_lines(card.report)
    if not lines:
        print_table(console, card)
        return
    grid = Table(box=None, pad_edge=False, show_header=False)
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for line in lines:
        grid.add_row(line.title, plain(line.text, "bold" if line.alarm else ""))
    console.print()
    console.print(grid)
    console.print()
