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


def seed_global(seed: int, device: torch.device | None = None) -> None:
    """Seed the CPU's global generator, and that of one device; `torch.manual_seed` would seed those of all devices."""
    torch.default_generator.manual_seed(seed)
    if device is not None and device.type == "cuda":
        with torch.cuda.device(device):
            torch.cuda.manual_seed(seed)
    elif device is not None and device.type != "cpu":
        torch.get_device_module(device).manual_seed(seed)


def cuda_in_use() -> list[int]:
    """The CUDA devices whose global generators may have been used, for ``fork_rng``."""
    return list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []
