"""The interactive page: one HTML file that computes everything it shows, offline, and how large it may become."""

import base64
import gzip
import json
import math
import os
from collections.abc import Sequence
from functools import cache, lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
from numpy.typing import NDArray

from clearance._files import write_bytes
from clearance.explore.exhibits import example_distances
from clearance.explore.machines import LOG_LAMBDAS, Machines, all_machines
from clearance.explore.scene import ClassSamples, Scene

SCRIPTS = (
    "vectors",
    "losses",
    "hinge",
    "sparse",
    "tilting",
    "drawing",
    "handle",
    "plane_parts",
    "toy_images",
    "toy_space",
    "odd_image",
    "loss_scaling",
    "pictures",
    "pair_plane",
    "pair_histogram",
    "pair",
    "pair_readout",
    "start",
)
"""In order: what computes first, then what draws. Each is a file of ``scripts/``."""


def render_explorer(
    scene: Scene,
    machines: Sequence[Machines] | None = None,
    *,
    command: str = "clearance explore",
) -> str:
    """The page of a scene as text.

    There is one of `machines` for each pair, as :func:`all_machines` gives them; by default they are fitted here.
    `command`, what made the page, is printed at the end.

    Raises:
        ValueError: If the page would be larger than 8 MB (two classes) or 25 MB, or two classes have one mean.

    >>> import numpy as np
    >>> from clearance.explore.scene import scene_of
    >>> x, y = np.eye(4), np.array([0, 0, 1, 1])
    >>> page = render_explorer(scene_of((x, y), (x, y), ("ape", "bee"), shape=(1, 2, 2)))
    >>> page.startswith("<!doctype html>"), "https://" in page
    (True, False)
    """
    classes = packed_classes(scene)
    check_size(scene, classes)
    found = all_machines(scene) if machines is None else machines
    blobs = [(f"class-{k}", text) for k, text in enumerate(classes)]
    blobs += [(f"pair-{k}", packed(one.directions)) for k, one in enumerate(found)]
    return _template().render(
        title=_title(scene),
        heading=scene.name,
        first=scene.classes[found[0].first].name,  # until the scripts have unpacked the pair that is shown
        second=scene.classes[found[0].second].name,
        note=_note(scene),
        units=scene.unit,
        pictures=scene.shape is not None,
        steps=len(LOG_LAMBDAS),
        command=command,
        style=_text("clearance.report", "page.css") + _text("clearance.explore", "explore.css"),
        scene=_as_json(_facts(scene, found)),
        blobs=blobs,
        script=_script(),
    )


def write_explorer(
    scene: Scene,
    path: str | os.PathLike[str],
    machines: Sequence[Machines] | None = None,
    *,
    command: str = "clearance explore",
) -> Path:
    """Write the page of a scene to `path` and return it; folders on the way are made.

    Raises:
        ValueError: As :func:`render_explorer`; nothing is written then.

    >>> import tempfile
    >>> import numpy as np
    >>> from clearance.explore.scene import scene_of
    >>> x, y = np.eye(4), np.array([0, 0, 1, 1])
    >>> scene = scene_of((x, y), (x, y), ("ape", "bee"), shape=(1, 2, 2))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_explorer(scene, Path(folder) / "new" / "page.html").name
    'page.html'
    """
    page, file = render_explorer(scene, machines, command=command), Path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(file, page.encode())
    return file


def _facts(scene: Scene, found: Sequence[Machines]) -> dict[str, Any]:
    """What the scripts get in addition to samples and weights."""
    return {
        "space": {"width": scene.width, "shape": scene.shape, "low": scene.low, "step": scene.step},
        "classes": [
            {"name": one.name, "train": len(one.train), "test": len(one.test)} for one in scene.classes
        ],
        "log_lambdas": LOG_LAMBDAS.tolist(),
        "distances": example_distances().tolist(),
        "pairs": [
            {
                "first": one.first,
                "second": one.second,
                "scales": one.scales.tolist(),
                "offsets": one.offsets.tolist(),
                "gaps": one.gaps.tolist(),
            }
            for one in found
        ],
    }


def _note(scene: Scene) -> str:
    sizes = [len(one.train) for one in scene.classes]
    of = f"{min(sizes):,}" if min(sizes) == max(sizes) else f"{min(sizes):,} to {max(sizes):,}"
    return (
        f"Exact linear SVMs, one for each of {len(LOG_LAMBDAS)} penalties λ, fitted to {of} training samples of "
        "each class. Move λ: weak penalties tilt the boundary until every training sample is right, and close; "
        "strong ones align its normal with the line through the class means, which keeps it as far as possible "
        "from all samples."
    )


def _title(scene: Scene) -> str:
    if len(scene.classes) > 2:
        return f"{scene.name}, {len(scene.classes)} classes"
    return f"{scene.name}: {scene.classes[0].name} against {scene.classes[1].name}"


def _as_json(facts: dict[str, Any]) -> str:
    """JSON that cannot end its script element, whatever the names of the classes."""
    return json.dumps(facts, separators=(",", ":"), ensure_ascii=False).replace("<", "\\u003c")


def _script() -> str:
    """All scripts as one, in their own scope."""
    parts = [_text("clearance.explore", f"scripts/{name}.js") for name in SCRIPTS]
    return '(() => {\n"use strict";\n' + "\n".join(parts) + "})();"


def _text(package: str, file: str) -> str:
    return resources.files(package).joinpath(file).read_text(encoding="utf-8")


@cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        autoescape=True,  # names come from users
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.from_string(_text("clearance.explore", "page.html.j2"))


PAIR_LIMIT, ALL_LIMIT = 8_000_000, 25_000_000  # bytes of a page with one pair, and with several
OWN = 150_000  # bytes of the page without samples and machines
SHRINKS = 0.95  # what compression leaves of float32 weights that are not 0
SPELT = 3 * 22 * len(LOG_LAMBDAS)  # bytes of a pair's scales, offsets and gaps, at most, as decimals


def packed(array: NDArray[Any]) -> str:
    r"""The array's bytes, little-endian, through gzip and base64; the same array gives the same text.

    >>> gzip.decompress(base64.b64decode(packed(np.array([1, 2], dtype=np.uint8))))
    b'\x01\x02'
    """
    little = array.astype(array.dtype.newbyteorder("<"), copy=False)
    return base64.b64encode(gzip.compress(little.tobytes(), 9, mtime=0)).decode("ascii")


def packed_classes(scene: Scene) -> list[str]:
    """Each class as text: its training rows, then its test rows."""
    return [_packed_class(one) for one in scene.classes]


@lru_cache(maxsize=128)  # packed once to see that the page will not be too large, and once to write it
def _packed_class(one: ClassSamples) -> str:
    return packed(np.concatenate([one.train, one.test]))


def size_limit(scene: Scene) -> int:
    """How many bytes the page may have."""
    return PAIR_LIMIT if len(scene.classes) == 2 else ALL_LIMIT


def check_size(scene: Scene, classes: list[str]) -> None:
    """Refuse a page that would be too large before any machine is fitted.

    Raises:
        ValueError: With the number of samples of a class that would fit, or how else to make the page smaller.
    """
    samples = sum(len(text) for text in classes)
    varied = np.zeros(scene.width, dtype=bool)
    for one in scene.classes:
        varied |= np.any(one.train != scene.classes[0].train[0], axis=0)
    pairs = math.comb(len(scene.classes), 2)
    weights = int(pairs * (len(LOG_LAMBDAS) * varied.sum() * 4 * SHRINKS * 4 / 3 + SPELT))
    limit = size_limit(scene)
    if samples + weights + OWN <= limit:
        return
    most = max(max(len(one.train), len(one.test)) for one in scene.classes)
    fit = int(0.95 * most * (limit - weights - OWN) / samples) if weights + OWN < limit else 0
    ways = [f"take at most {fit} samples of each class (--per-class {fit})"] if fit >= 2 else []
    ways += ["name two classes instead of all"] if pairs > 1 else []
    ways += ["use smaller images"] if not ways else []
    of = "1 pair" if pairs == 1 else f"{pairs} pairs"
    raise ValueError(
        f"the page would have {(samples + weights + OWN) / 1e6:.1f} MB with {of} of classes; at most "
        f"{limit / 1e6:.0f} MB are allowed; {', or '.join(ways)}."
    )
