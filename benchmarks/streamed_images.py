"""Memory of an audit of pictures that do not fit into it: accuracy and features of a folder at 224 x 224.

    python benchmarks/streamed_images.py                  # 300 and 1,200 pictures, a minute or two
    python benchmarks/streamed_images.py --counts 10000

Each count runs in a process of its own: pictures are written, decoded into the cache, and go through a small network
(accuracy, features of training and held-out images); then again, with what is kept. It reports the most memory
that the process held beyond that of its imports. Images may take 64 MiB of memory here, not the library's 1 GiB, so
that few pictures show what many would do.
"""

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SIZE, CLASSES = 224, 4


def write_pictures(folder: Path, count: int) -> None:
    """Smooth pictures of 256 x 288, half to train and half to test on."""
    import numpy as np
    from PIL import Image

    generator = np.random.default_rng(0)
    for split in ("train", "test"):
        for i in range(count // 2):
            coarse = generator.integers(0, 256, (8, 9, 3), dtype=np.uint8)
            place = folder / split / str(i % CLASSES)
            place.mkdir(parents=True, exist_ok=True)
            Image.fromarray(coarse).resize((288, 256)).save(place / f"{i}.jpg", quality=80)


def audit(folder: Path) -> int:
    """Audit once in this process; the MiB that it added to what its imports hold."""
    import torch

    import clearance.data.stored
    from clearance.data import Preprocessing, open_images
    from clearance.experiments.audit_plan import AuditPlan
    from clearance.experiments.feature_cache import FeatureCache, KeptSubject
    from clearance.models import Classifier

    torch.set_num_threads(1)
    clearance.data.stored.IN_MEMORY = 64 * 2**20
    extractor = torch.nn.Sequential(
        torch.nn.Conv2d(3, 16, 7, 4), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(4), torch.nn.Flatten()
    )
    torch.manual_seed(0)
    model = Classifier(extractor, torch.nn.Linear(256, CLASSES), 0.5, 0.25).eval()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    how, cache = Preprocessing(size=SIZE, short_side=256), folder / "cache"
    train, test = (open_images(f"folder:{folder / split}", how, cache=cache) for split in ("train", "test"))
    subject = KeptSubject(model, train, test, cache=FeatureCache(cache))
    for audit in AuditPlan.of(["accuracy", "class_scatter"]).audits:
        audit.examine(subject)
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024


def main() -> None:
    """Run each count in a process of its own, twice."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--counts", type=int, nargs="+", default=[300, 1200])
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.folder is not None:
        print(audit(options.folder))
        return
    print(
        f"{'pictures':>9} {'as float32':>11} {'first MiB':>10} {'again MiB':>10} {'first s':>8} {'again s':>8}"
    )
    for count in options.counts:
        with tempfile.TemporaryDirectory() as name:
            write_pictures(Path(name), count)
            measured = []
            for _ in range(2):
                began = time.perf_counter()
                words = [sys.executable, __file__, "--folder", name]
                added = subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()
                measured.append((added, time.perf_counter() - began))
            (first, slow), (again, quick) = measured
            whole = f"{count * 3 * SIZE**2 * 4 / 2**20:.0f} MiB"
            print(f"{count:>9} {whole:>11} {first:>10} {again:>10} {slow:>8.0f} {quick:>8.0f}", flush=True)


if __name__ == "__main__":
    main()
