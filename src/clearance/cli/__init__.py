"""The command ``clearance``: one command per file; heavy imports wait until a command runs."""
