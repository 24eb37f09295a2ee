"""A page in the browser of a desktop."""

import os
import sys
import webbrowser
from pathlib import Path


def open_page(page: Path) -> bool:
    """Open a page in the browser; whether that was possible.

    Without a desktop nothing is opened, because a browser that lives in the terminal would take it over.

    Args:
        page: An HTML file.
    """
    desktop = sys.platform in ("darwin", "win32") or any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY")))
    return desktop and webbrowser.open(page.resolve().as_uri())
