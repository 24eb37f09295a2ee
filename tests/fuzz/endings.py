"""How every case of the fuzzer must end, and how many there are.

`CLEARANCE_FUZZ=50` multiplies the number of cases, and draws others at each call; without it they are always the same.
"""

import os
import warnings
from contextlib import contextmanager

import pytest
from hypothesis import HealthCheck, settings

TIMES = int(os.environ.get("CLEARANCE_FUZZ", "1"))
MARK = pytest.mark.slow if TIMES == 1 else pytest.mark.long


def cases(count):
    """Settings for a test of that many cases."""
    return settings(
        max_examples=count * TIMES,
        derandomize=TIMES == 1,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )


@contextmanager
def one_line(*names):
    """Nothing happens, or an error of one line that a command shows, with one of `names` in it.

    Args:
        names: Of the file or setting in question.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield
        except (ValueError, OSError) as caught:
            error = caught
        else:
            return
    message = str(error)
    assert "\n" not in message, f"more than one line: {message!r}"
    assert not isinstance(error, UnicodeError), f"not said by Clearance: {message!r}"
    assert any(name in message for name in names), f"does not name any of {names}: {message!r}"
    assert len(message) < 3000, f"too long: {message[:200]!r}"
