"""What a user at a terminal does: run a command, and read what it printed."""

import contextlib
import io
import re
import subprocess
import sys

import pytest

from clearance.cli.__main__ import main


def run(*words):
    """A command in this process: its exit status and what it printed."""
    out, err = io.StringIO(), io.StringIO()
    status: str | int | None = 0
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(sys, "argv", ["clearance", *words])
        try:
            main(list(words))
        except SystemExit as ended:
            status = ended.code
    return status, out.getvalue(), err.getvalue()


def loaded_by(*words):
    """The modules that a command imports, in a process of its own."""
    code = (
        "import sys\nfrom clearance.cli.__main__ import main\n"
        f"try:\n    main({list(words)!r})\nexcept SystemExit as ended:\n    assert not ended.code, ended.code\n"
        "print('MODULES', *sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    shown, _, modules = done.stdout.partition("MODULES")
    return shown, set(modules.split())


def plain_text(html):
    return re.sub(r"<[^>]*>", "", html)
