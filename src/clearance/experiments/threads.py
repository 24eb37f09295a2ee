"""How many threads torch works with."""

import contextlib
from collections.abc import Iterator

import torch


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Torch with one thread, so that numbers depend neither on the machine's cores nor on what else runs there.

    Small networks gain little from a second one, and on a machine whose cores are taken two that wait for each other
    are many times slower than one.

    >>> with one_thread():
    ...     torch.get_num_threads()
    1
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
