"""Names that a report must not give away: of the user, and of the machine."""

import getpass
import platform
from contextlib import suppress
from pathlib import Path

INSTEAD = "images"


def without_owner(name: str) -> str:
    """The name of a folder or set, or another word where it is that of the user, the home folder or the machine.

    >>> without_owner("val"), without_owner(getpass.getuser())
    ('val', 'images')
    """
    return INSTEAD if name.casefold() in _owner() else name


def _owner() -> set[str]:
    found = {platform.node(), platform.node().partition(".")[0], Path.home().name}
    with suppress(OSError, KeyError, ImportError):  # a user without a name
        found.add(getpass.getuser())
    return {name.casefold() for name in found if name}
