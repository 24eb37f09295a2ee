"""The networks of the article's last section, and of the question that it leaves open: how depth changes all that."""

import functools
import math
from collections import OrderedDict
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from clearance import Classifier, ImageSet, fit, load_dataset
from clearance.heads import MLP
from clearance.losses import CrossEntropyLoss
from clearance.models import lenet
from clearance.research import derived_seed, with_channels_last
from clearance.training import EndToEnd, FitResult, Limits

PAPER = "tanay_2018"
Init = Literal["he", "small"]
SMALL = 0.01  # standard deviation of MatConvNet's first weights
WIDTH = 256  # of hidden layers of multi-layer perceptrons
WATCHED = 300  # training images of each class whose error is measured after every epoch


class MinusImage(nn.Module):
    """Subtracts one image from all."""

    image: Tensor

    def __init__(self, image: Tensor) -> None:
        super().__init__()
        self.register_buffer("image", image)

    def forward(self, images: Tensor) -> Tensor:
        """Images without what they have in common."""
        return images - self.image


@functools.lru_cache(maxsize=1)
def images_of(dataset: str, root: str | None, per_class: int) -> tuple[ImageSet, ImageSet]:
    """The first training images of each class, at most a given number, in the order of the set; and all test images."""
    train, test = load_dataset(dataset, "train", root), load_dataset(dataset, "test", root)
    rows = [(train.labels == k).nonzero().flatten()[:per_class] for k in range(train.class_count)]
    return train.subset(torch.cat(rows).sort().values), test


def lenet_network(train: ImageSet, init: Init, seed: int) -> Classifier:
    """LeNet on pixels of 0 to 255 minus the mean training image, with first weights of one of two sizes.

    Args:
        train: Gives the mean image, and the sizes.
        init: ``"small"``: every weight 0.01 times normal, as in MatConvNet's example. ``"he"``: the first convolution
            likewise (larger ones diverge on such pixels), the others sqrt(2 / fan-out) times normal, which are the
            sizes that the article prints for low decay. Biases begin at 0.
        seed: Decides them.
    """
    channels, size, _ = train.shape
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derived_seed(seed, "lenet", init))
        body = lenet(channels, size)
        centre = ("centre", MinusImage(255 * train.images.mean(dim=0)))
        extractor = nn.Sequential(OrderedDict([centre, *body.named_children()]))
        model = Classifier(extractor, MLP((500, train.class_count)), 0.0, 1 / 255)
        for name, layer in model.named_modules():
            if not isinstance(layer, nn.Conv2d | nn.Linear):
                continue
            assert layer.bias is not None
            nn.init.zeros_(layer.bias)
            if init == "small" or name == "extractor.conv1":
                nn.init.normal_(layer.weight, std=SMALL)
            elif name.startswith("head"):  # the extractor's are He's already
                nn.init.normal_(layer.weight, std=math.sqrt(2 / len(layer.weight)))
    return model


def deep_network(train: ImageSet, layers: int, seed: int) -> Classifier:
    """A multi-layer perceptron of the given number of layers, 256 wide; first weights after He et al. (2015).

    Args:
        train: Normalises images, and gives the sizes.
        layers: At least 1, which is a linear classifier.
        seed: Decides the weights.
    """
    widths = [math.prod(train.shape), *[WIDTH] * (layers - 1), train.class_count]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derived_seed(seed, "depth", layers))
        parts: list[nn.Module] = [nn.Flatten()]
        for k in range(layers - 1):
            parts += [nn.Linear(widths[k], widths[k + 1]), nn.ReLU()]
        head = nn.Linear(widths[-2], widths[-1])
        for part in (*parts, head):
            if isinstance(part, nn.Linear):
                nn.init.kaiming_normal_(part.weight, nonlinearity="relu")
                nn.init.zeros_(part.bias)
    mean, std = float(train.images.mean()), float(train.images.std())
    return Classifier(nn.Sequential(*parts), head, mean, std)


def trained(task: dict[str, Any], root: str | None, folder: str) -> tuple[FitResult, ImageSet, ImageSet]:
    """The network of a task, trained, or read back where `folder` has it finished; and its images.

    Args:
        task: ``dataset``, ``per_class``, ``init`` or ``layers``, ``decay``, ``seed``, ``epochs``,
            ``batch_size``, ``lr``, and perhaps ``clip_norm``.
        root: Where the dataset's files are.
        folder: The folder for networks, one subfolder each.
    """
    train, test = images_of(task["dataset"], root, task["per_class"])
    seed = task["seed"]
    if "init" in task:
        # two thirds of the time on a CPU
        model = with_channels_last(lenet_network(train, task["init"], seed))
        name = f"lenet-{task['init']}"
    else:
        model, name = deep_network(train, task["layers"], seed), f"mlp-{task['layers']}"
    watched = {"test": test, "train": train.per_class(min(WATCHED, _fewest(train)), seed=0)}
    result = fit(
        model,
        EndToEnd(CrossEntropyLoss()),
        train,
        epochs=task["epochs"],
        batch_size=task["batch_size"],
        # coupled: the decay of every weight and bias is a part of its gradient
        optimizer=partial(torch.optim.SGD, lr=task["lr"], momentum=0.9, weight_decay=task["decay"]),
        validation=watched,
        limits=Limits(clip_norm=task.get("clip_norm")),
        seed=seed,
        run_dir=Path(folder) / f"{name}-decay{task['decay']:g}-seed{seed}",
    )
    return result, train, test


def _fewest(train: ImageSet) -> int:
    return int(torch.bincount(train.labels, minlength=train.class_count).min())
