"""Pixels of many images in one file, read a few at a time: what keeps a set larger than memory on disk."""

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from clearance._files import write_bytes

KINDS = ("uint8", "float32")


@dataclass(frozen=True)
class PixelStore:
    """Images of one shape in a plain file, one after the other; bytes are divided by 255 when they are read.

    Every read maps the file anew and copies what it needs, so that pages do not stay with this process: memory is
    that of the images asked for, whatever the file holds.

    Args:
        path: The file.
        count: How many images.
        shape: (C, H, W) of each.
        kind: ``"uint8"``, or ``"float32"`` for pixels that bytes cannot hold.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = write_pixels(Path(folder, "a.pixels"), [np.full((1, 2, 2), 255, dtype=np.uint8)] * 3)
    ...     store.read(torch.tensor([2, 0])).shape, float(store.read(torch.tensor([1])).mean())
    (torch.Size([2, 1, 2, 2]), 1.0)
    """

    path: Path
    count: int
    shape: tuple[int, int, int]
    kind: str

    def read(self, rows: Tensor | slice) -> Tensor:
        """The images of these rows as float32 in [0, 1], (B, C, H, W)."""
        pixels: NDArray = np.memmap(self.path, self.kind, "r", shape=(self.count, *self.shape))
        chosen = rows if isinstance(rows, slice) else rows.cpu().numpy()
        found = torch.from_numpy(np.array(pixels[chosen]))
        return found.float().div_(255) if self.kind == "uint8" else found


def write_pixels(path: Path, images: Iterable[NDArray]) -> PixelStore:
    """Write images (C, H, W) of one shape and type, one at a time; the file is there entirely or not at all.

    Raises:
        ValueError: If there is none, or two differ in shape or type.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    first: NDArray | None = None
    count = 0
    try:
        with temporary.open("wb") as file:
            for image in images:
                first = image if first is None else first
                _check_alike(first, image, count)
                file.write(np.ascontiguousarray(image).data)
                count += 1
        if first is None:
            raise ValueError("`images` must hold at least one image; got none.")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    channels, height, width = first.shape
    return PixelStore(path, count, (channels, height, width), str(first.dtype))


def _check_alike(first: NDArray, image: NDArray, place: int) -> None:
    if image.shape != first.shape or image.dtype != first.dtype:
        raise ValueError(
            f"all images must have one shape and type; got {first.shape} of {first.dtype} at index 0 and "
            f"{image.shape} of {image.dtype} at index {place}; give `image_size`."
        )


def write_facts(store: PixelStore, facts: Mapping[str, Any]) -> None:
    """What belongs to the pixels, beside them; written last, so that facts that are there speak of whole pixels."""
    told = {**asdict(store), "path": store.path.name, "facts": dict(facts)}
    write_bytes(_facts_of(store.path), (json.dumps(told, ensure_ascii=False) + "\n").encode())


def read_facts(path: Path) -> tuple[PixelStore, dict[str, Any]] | None:
    """The store at `path` with its facts; None where there is none, or a damaged one."""
    try:
        told = json.loads(_facts_of(path).read_text("utf-8"))
        channels, height, width = told["shape"]
        store = PixelStore(path, told["count"], (channels, height, width), told["kind"])
        size = path.stat().st_size
    except (OSError, ValueError, KeyError, TypeError):
        return None
    whole = store.count * channels * height * width * np.dtype(store.kind).itemsize
    return (store, told["facts"]) if store.kind in KINDS and size == whole else None


def _facts_of(path: Path) -> Path:
    return path.with_suffix(".json")
