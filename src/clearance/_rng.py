"""One seed, many independent streams of random numbers, each with a name."""

import hashlib

import torch

from clearance._checks import check_count


def derived_seed(seed: int, *names: str | int) -> int:
    """A seed for the stream `names` of `seed`: equal inputs give equal seeds, on every machine.

    >>> derived_seed(0, "batches", 3) == derived_seed(0, "batches", 3)
    True
    >>> derived_seed(0, "batches") == derived_seed(0, "head_init")
    False
    """
    check_count("seed", seed, minimum=0)
    digest = hashlib.sha256(repr((seed, *names)).encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1  # torch takes 63 bits without a sign


def generator(seed: int, *names: str | int) -> torch.Generator:
    """A CPU generator for the stream `names` of `seed`.

    Generators live on the CPU, so that a seed means the same draws on every device.

    >>> first = torch.rand(2, generator=generator(7, "noise"))
    >>> torch.equal(first, torch.rand(2, generator=generator(7, "noise")))
    True
    """
    return torch.Generator().manual_seed(derived_seed(seed, *names))
