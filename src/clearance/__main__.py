"""The command ``clearance``, also as ``python -m clearance``."""

from clearance.cli._ending import one_line_errors


def main() -> None:
    """Run the command; also a package that is missing ends in a status of its own."""
    with one_line_errors("clearance"):
        from clearance.cli.__main__ import main as run

        run()


if __name__ == "__main__":
    main()
