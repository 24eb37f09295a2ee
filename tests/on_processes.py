"""One small network per loss, trained in Lightning or in Hugging Face's Trainer, by one process or by several.

python on_processes.py HOST FOLDER; each process writes the states that it ends with, float64, to FOLDER/SIZE-RANK.pt.
"""

import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

import clearance as cl
import conftest  # noqa: F401 - a torchvision that is broken beside a CPU torch imports after this
from clearance.losses import CenterLoss, GaussianMixtureLoss, LargeMarginLoss
from clearance.training import FOCA

OBJECTIVES: dict[str, Callable[[], Any]] = {
    "margin": lambda: LargeMarginLoss(("input",)),
    "center": lambda: CenterLoss(16, 10),
    "centres in the optimiser": lambda: CenterLoss(16, 10, update="gradient", weight=1.0),
    "mixture": GaussianMixtureLoss,
    "foca": FOCA,
}
STEPS, BATCH, RATE = 6, 32, 0.05
SIZE, RANK = (int(os.environ.get(name, default)) for name, default in (("WORLD_SIZE", "1"), ("RANK", "0")))


def model(name):
    torch.manual_seed(0)
    features = (nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(512, 16), nn.ReLU())
    head = cl.heads.GaussianMixture(16, 10) if name == "mixture" else nn.Linear(16, 10)
    return cl.Classifier(nn.Sequential(*features), head)


def in_lightning(name, train, folder):
    from lightning.pytorch import LightningModule, Trainer
    from torch.utils.data import DataLoader, TensorDataset

    from clearance.integrations.lightning import TrainsClassifier

    class Net(TrainsClassifier, LightningModule):
        def __init__(self):
            super().__init__()
            self.model, self.objective, self.images = model(name), OBJECTIVES[name](), train

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=RATE)

    rows = list(range(RANK, len(train), SIZE))  # so that all processes together have the batch of one
    data = DataLoader(TensorDataset(train.images, train.labels), BATCH // SIZE, sampler=rows)
    net = Net()
    Trainer(
        max_steps=STEPS, accelerator="cpu", devices=SIZE, strategy="ddp" if SIZE > 1 else "auto", logger=False,
        use_distributed_sampler=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, default_root_dir=folder,
    ).fit(net, data)  # fmt: skip
    return net.model, net.hosted.loss


def in_the_trainer(name, train, folder):
    from transformers import Trainer, TrainingArguments

    from clearance.integrations.transformers import TrainsClassifier

    class ClassifierTrainer(TrainsClassifier, Trainer): ...

    settings = TrainingArguments(
        str(folder), max_steps=STEPS, per_device_train_batch_size=BATCH // SIZE, learning_rate=RATE, optim="sgd",
        lr_scheduler_type="constant", max_grad_norm=0.0, use_cpu=True, seed=0, report_to=[], save_strategy="no",
        disable_tqdm=True, logging_strategy="no",
    )  # fmt: skip
    data = [
        {"images": image, "labels": int(label)}
        for image, label in zip(train.images, train.labels, strict=True)
    ]
    host = ClassifierTrainer(
        model(name), settings, train_dataset=data, objective=OBJECTIVES[name](), images=train
    )
    host.train()
    return host.hosted.model, host.hosted.loss


def ends(kind, folder):
    """The states that one process ends with, and both of two."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    for launcher in ((), ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")):
        words = [sys.executable, *launcher, __file__, kind, str(folder)]
        done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    return [torch.load(folder / f"{name}.pt") for name in ("1-0", "2-0", "2-1")]


def check_that_processes_agree(kind, folder):
    """Two processes end in the same bits; where nothing is drawn, in the numbers of one with the joint batch."""
    one, *two = ends(kind, folder)
    for name in OBJECTIVES:
        assert one[name].keys() == two[0][name].keys()
        for key, value in two[0][name].items():
            assert torch.equal(value, two[1][name][key]), (name, key)
            if name != "foca":  # its heads are drawn on each process
                torch.testing.assert_close(value, one[name][key], rtol=1e-4, atol=1e-6, msg=f"{name} {key}")


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # of the other packages
    torch.set_num_threads(1)
    kind, out = sys.argv[1], Path(sys.argv[2])
    digits = cl.load_dataset("digits").per_class(20, seed=0)
    ended = {}
    for each in OBJECTIVES:
        trained, loss = {"lightning": in_lightning, "trainer": in_the_trainer}[kind](each, digits, out)
        states = (("model", trained.state_dict()), ("loss", loss.state_dict()))
        ended[each] = {
            f"{part}.{key}": value.double()
            for part, state in states
            for key, value in state.items()
            if isinstance(value, torch.Tensor)
        }
    torch.save(ended, out / f"{SIZE}-{RANK}.pt")
