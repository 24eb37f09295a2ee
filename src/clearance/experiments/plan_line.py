"""One line before an audit: on which device, with how much memory, and what will be computed."""

from collections.abc import Sequence

import torch

from clearance.data import ImageSet, StoredImageSet
from clearance.experiments.build import RunData
from clearance.models import Classifier
from clearance.models._running import device_of
from clearance.models.features import batch_size_for


def plan_line(model: Classifier, data: RunData, unknown: ImageSet | None, audits: Sequence[str]) -> str:
    """Device, memory and what will be computed.

    Args:
        model: The classifier.
        data: Its images.
        unknown: Images of things that it never saw.
        audits: Names of what will be asked.
    """
    device = device_of(model)
    count = len(data.train) + len(data.test)
    with torch.no_grad():
        width = model.features(data.test.batch(torch.tensor([0]))[0].to(device)).shape[1]
    held = sum(some.images.nbytes for some in (data.train, data.test) if not isinstance(some, StoredImageSet))
    where = f"images {_size(held)} in memory" if held else "images stay on disk"
    further = "" if unknown is None else f"and {len(unknown)} unknown "
    return (
        f"device {device}; {len(data.train)} training and {len(data.test)} held-out {further}images of "
        f"{'x'.join(map(str, data.test.shape))}; {where}, features {_size(4 * count * width)}, batches of "
        f"{batch_size_for(data.test)}; computing {', '.join(audits)}"
    )


def _size(count: int) -> str:
    return f"{count / 2**20:.0f} MiB" if count < 2**30 else f"{count / 2**30:.1f} GiB"
