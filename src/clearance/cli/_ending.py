"""How a command ends: in one line if the user can help it, and with a status that says so."""

import codecs
import io
import os
import sys
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from clearance._text import visible

FAILED, USAGE, DEFECT, INTERRUPTED = 1, 2, 70, 130  # 70 as EX_SOFTWARE of sysexits.h
_SPELT = {
    "\u202f": " ",
    "\xa0": " ",
    "–": "-",
    "−": "-",
    "×": "x",
    "→": "->",
    "∞": "inf",
    "…": "...",
    "±": "+-",
}


@contextmanager
def one_line_errors(program: str, *, resumes: bool = False) -> Iterator[None]:
    """Turn errors that users can fix into one line, warnings too, and all other errors into the status `DEFECT`.

    Letters that the streams' encoding does not have are spelt or escaped, so that no output fails for them.

    Args:
        program: Its name, before the line.
        resumes: Whether the same command goes on after an interruption.
    """
    _open_what_is_closed()
    _spell_unknown_letters()
    in_full = warnings.formatwarning

    def in_a_line(
        message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
    ) -> str:
        if not issubclass(category, UserWarning):
            return in_full(message, category, filename, lineno, line)
        return f"{program}: warning: {visible(' '.join(str(message).splitlines()))}\n"

    warnings.formatwarning = in_a_line
    try:
        yield
    except (ValueError, OSError) as error:
        sys.stderr.write(f"{program}: {visible(' '.join(_said(error).splitlines()))}\n")
        sys.exit(USAGE)
    except KeyboardInterrupt:
        again = " The same command resumes." if resumes else ""
        sys.stderr.write(f"\n{program}: interrupted.{again}\n")
        sys.exit(INTERRUPTED)
    except Exception:  # noqa: BLE001 - shown in full; without this the status would be 1, which `check` gives a meaning
        sys.stderr.write(
            f"{traceback.format_exc()}{program}: this is a defect; please report the lines above.\n"
        )
        sys.exit(DEFECT)
    finally:
        warnings.formatwarning = in_full


def _said(error: Exception) -> str:
    """An error's message; one of the operating system in words."""
    if not isinstance(error, OSError) or error.strerror is None or error.filename is None:
        return str(error)
    return (
        f"cannot read or write {error.filename}: {error.strerror}. Check the path, its permissions and the space on "
        "the disk."
    )


def _open_what_is_closed() -> None:
    """A shell may close a stream (``2>&-``); Python then has None in its place, and writing would be a defect."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 - until the process ends


def _spell_unknown_letters() -> None:
    codecs.register_error("spelt", _spelt)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="spelt")


def _spelt(error: UnicodeError) -> tuple[str | bytes, int]:
    """What stands for a letter that an encoding lacks; for `codecs.register_error`."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    letter = error.object[error.start]
    one = UnicodeEncodeError(error.encoding, error.object, error.start, error.start + 1, error.reason)
    return _SPELT.get(letter) or codecs.backslashreplace_errors(one)[0], error.start + 1
