"""A run's directory takes the same run again, and nothing else."""

from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from clearance import LossTerms
from clearance.data import Augmentation, ImageSet, gaussian_images
from clearance.heads import MLP, HeadTraining
from clearance.losses import Loss, SquaredErrorLoss
from clearance.models import Classifier
from clearance.training import FOCA, EndToEnd, Limits, fit


class Weighted(Loss):
    """Cross-entropy with settings, a buffer and a parameter."""

    def __init__(self, weight=1.0, layers=("input",), start=0.0, counts=(1.0,)):
        super().__init__()
        self.weight = weight
        self.layers = list(layers)
        self.offset = nn.Parameter(torch.tensor(start))
        self.register_buffer("counts", torch.tensor(counts))

    def forward(self, outputs, labels):
        loss = self.weight * F.cross_entropy(outputs.logits + self.offset * outputs.logits.detach(), labels)
        return LossTerms({"weighted": loss})


class Leaky(nn.Module):
    def __init__(self, slope):
        super().__init__()
        self.slope = slope

    def forward(self, x):
        return F.leaky_relu(x, self.slope)


def classifier(layer=None, nudge=0.0, mean=0.5, dropout=0.0):
    torch.manual_seed(0)
    extractor = nn.Sequential(nn.Flatten(), nn.Linear(16, 6), layer or nn.ReLU())
    model = Classifier(extractor, MLP((6, 5, 3), dropout=dropout), mean=mean)
    with torch.no_grad():
        next(model.head.parameters()).add_(nudge)
    return model


def recipe():
    """A recipe, all of it made anew."""
    return {
        "model": classifier(),
        "way": EndToEnd(Weighted()),
        "train": gaussian_images(class_count=3, per_class=4, shape=(1, 4, 4)),
        "epochs": 2,
        "batch_size": 6,
        "optimizer": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
        "seed": 0,
    }


def run(folder, **changes):
    settings = recipe() | changes
    places = [settings.pop(name) for name in ("model", "way", "train")]
    return fit(*places, run_dir=folder, **settings)


def changed_data(pixel=0.0, label=0):
    data = recipe()["train"]
    images, labels = data.images.clone(), data.labels.clone()
    images[5, 0, 0, 0] += pixel
    labels[5] = (labels[5] + label) % 3
    return ImageSet(images, labels, data.classes)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "run"
    return folder, run(folder)


def foca(**settings: Any):
    usual: dict[str, Any] = {"per_class": 2, "final_head": HeadTraining(steps=5)}
    return FOCA(Weighted(), **(usual | settings))


CHANGES: dict[str, tuple[str, dict[str, Any]]] = {
    "lr": ("optimizer", {"optimizer": lambda p: torch.optim.SGD(p, lr=0.2, momentum=0.9)}),
    "optimiser": ("optimizer", {"optimizer": lambda p: torch.optim.Adam(p, lr=0.1)}),
    "partial": ("optimizer", {"optimizer": partial(torch.optim.SGD, lr=0.1, momentum=0.9)}),
    "epochs": ("settings.epochs: 2 there, 3 here", {"epochs": 3}),
    "batch_size": ("settings.batch_size: 6 there, 5 here", {"batch_size": 5}),
    "seed": ("settings.seed: 0 there, 1 here", {"seed": 1}),
    "clip_norm": ("settings.limits.clip_norm: null there, 1.0 here", {"limits": Limits(clip_norm=1.0)}),
    "max_norm": ("settings.limits.max_norm: null there, 3.0 here", {"limits": Limits(max_norm=3.0)}),
    "schedule": ("schedule", {"schedule": partial(torch.optim.lr_scheduler.StepLR, step_size=1)}),
    "pixel": ("train", {"train": changed_data(pixel=1e-6)}),
    "label": ("train", {"train": changed_data(label=1)}),
    "validation": ("validation", {"validation": recipe()["train"]}),
    "augmentation": ("augmentation", {"train": recipe()["train"].augmented(Augmentation(pad=1))}),
    "layer": ("model", {"model": classifier(nn.Tanh())}),
    "layer's setting": ("model", {"model": classifier(nn.LeakyReLU(0.2))}),
    "own layer": ("model", {"model": classifier(Leaky(0.2))}),
    "dropout": ("model", {"model": classifier(dropout=0.1)}),
    "first weights": ("first_weights", {"model": classifier(nudge=1e-6)}),
    "mean": ("first_weights", {"model": classifier(mean=0.4)}),
    "loss": ("way.loss", {"way": EndToEnd(SquaredErrorLoss())}),
    "loss's number": ("way.loss.weight: 1.0 there", {"way": EndToEnd(Weighted(2.0))}),
    "loss's layers": ("way.loss.layers", {"way": EndToEnd(Weighted(layers=["extractor"]))}),
    "loss's weights": ("first_loss", {"way": EndToEnd(Weighted(start=0.1))}),
    "loss's buffer": ("first_loss", {"way": EndToEnd(Weighted(counts=(2.0,)))}),
    "head noise": ("way.head_noise: 0.0 there", {"way": EndToEnd(Weighted(), head_noise=0.1)}),
    "way": ("way.final_head", {"way": foca()}),
}  # fmt: skip


def test_the_same_recipe_made_anew_is_read_back_without_training(finished, same, weights):
    folder, first = finished
    progress: list = []
    loss = Weighted()
    again = run(folder, way=EndToEnd(loss), on_step=progress.append, checkpoint_every=1)
    assert progress == []
    assert (again.status, again.history, again.seconds) == (first.status, first.history, first.seconds)
    assert same(weights(again.model), weights(first.model))
    assert float(loss.offset.detach()) != 0.0  # trained with the model and kept with it
    assert not again.model.training


@pytest.mark.parametrize("change", CHANGES)
def test_anything_that_moves_numbers_makes_it_another_run(finished, change):
    folder, _ = finished
    named, settings = CHANGES[change]
    with pytest.raises(ValueError, match="must be the directory of the same run") as refusal:
        run(folder, **settings)
    assert f" {named}" in str(refusal.value)


@pytest.mark.filterwarnings("ignore::clearance.losses.TrainingWarning")
def test_a_run_that_failed_is_read_back_with_its_status(tmp_path):
    settings = {"optimizer": partial(torch.optim.SGD, lr=1e30)}
    first = run(tmp_path / "run", **settings)
    again = run(tmp_path / "run", **settings)
    assert first.status == again.status
    assert str(first.status) == "diverged at step 2: term weighted is not finite"


def test_a_stopped_run_goes_on_when_it_is_called_again(tmp_path, same, weights):
    whole = run(tmp_path / "whole")
    steps = []
    first = run(
        tmp_path / "run", checkpoint_every=1, on_step=lambda progress: "stop" if progress.step == 3 else None
    )
    assert str(first.status) == "stopped at step 3: asked to"
    second = run(tmp_path / "run", checkpoint_every=1, on_step=lambda progress: steps.append(progress.step))
    assert steps == [4]
    assert second.history == whole.history
    assert same(weights(second.model), weights(whole.model))


def test_a_directory_in_use_does_not_change_the_bits(finished, tmp_path, same, weights):
    settings = recipe()
    free = fit(settings.pop("model"), settings.pop("way"), settings.pop("train"), **settings)
    assert same(weights(free.model), weights(finished[1].model))
    assert free.history == finished[1].history


def test_other_first_weights_are_not_a_reason_to_delete_a_run(finished):
    """A model that was built without a seed, or was trained already."""
    with pytest.raises(
        ValueError, match=r"first_weights.*after torch\.manual_seed with the same seed"
    ) as refusal:
        run(finished[0], model=classifier(nudge=1e-6))
    assert "delete" not in str(refusal.value)
