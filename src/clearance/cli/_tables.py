"""A report's first screen, for a terminal."""

from rich.table import Table

from clearance.cli._console import Console
from clearance.report import Card, comparison_table


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
