"""``clearance list``: the catalogue, one line each."""

from dataclasses import dataclass


@dataclass(frozen=True)
class ListCommand:
    """List datasets, models, methods, losses and audits, one line each."""

    def run(self) -> None:
        """Print the catalogue."""
        from rich.table import Table

        from clearance.cli._console import Console
        from clearance.experiments import catalogue

        console = Console()
        rooms = {
            "datasets": {name: entry.summary for name, entry in catalogue.DATASETS.items()},
            "models": {name: entry.summary for name, entry in catalogue.MODELS.items()},
            "methods": catalogue.METHODS,
            "losses": {name: entry.summary for name, entry in catalogue.LOSSES.items()},
            "audits": {name: entry.summary for name, entry in catalogue.AUDITS.items()},
        }
        for room, entries in rooms.items():
            table = Table(title=room, title_justify="left", title_style="bold", show_header=False, box=None)
            table.add_column(style="cyan", no_wrap=True)
            table.add_column()
            for name, summary in entries.items():
                table.add_row(name, summary)
            console.print(table)
