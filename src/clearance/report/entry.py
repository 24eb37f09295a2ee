"""What a page says about one quantity."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Entry:
    """One quantity: a title, what it is, how to read it, and what it does not mean."""

    title: str
    what: str
    reading: str
    not_meant: str
