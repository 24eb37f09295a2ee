"""``python -m clearance``: the command, if its script is not on the path."""

from clearance.cli.__main__ import main

if __name__ == "__main__":
    main()
