"""Training that is killed by SIGKILL and called again ends with the same bytes.

Run as a script this file trains, in one child process for every kill, and prints what was left.
"""

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn

from clearance import LossTerms
from clearance.data import Augmentation, gaussian_images
from clearance.heads import MLP, GradientHeads, HeadTraining
from clearance.losses import Loss
from clearance.losses.cross_entropy import cross_entropy
from clearance.models import Classifier
from clearance.training import FOCA, EndToEnd, Limits, fit

FILES = ("model.safetensors", "metrics.jsonl")
KILLS = 2  # at steps drawn at random; at every step by hand

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")


class WithCentre(Loss):
    """Cross-entropy with a learned temperature, and a buffer that moves after every step."""

    __module__ = "test_kill"  # as a script, and as a test
    centre: torch.Tensor

    def __init__(self):
        super().__init__()
        self.temperature = nn.Parameter(torch.ones(()))
        self.register_buffer("centre", torch.zeros(8))

    def forward(self, outputs, labels):
        pull = 1e-3 * (outputs.features - self.centre).square().sum(dim=1).mean()
        return LossTerms(
            {"loss": cross_entropy(outputs.logits * self.temperature, labels).mean(), "pull": pull}
        )

    def after_step(self, outputs, labels):
        self.centre.lerp_(outputs.features.detach().mean(dim=0), 0.1)


def extractor(*more):
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, stride=2), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(36, 8), *more
    )


def images(rate):
    noisy = gaussian_images(class_count=3, per_class=9).with_label_noise(rate, seed=0)
    return noisy.augmented(Augmentation(flip=True, pad=1, cutout=2))


def joint(folder, **how):
    """Dropout, augmentation, noisy labels, noisy heads, momentum, a schedule and a validation set."""
    model = Classifier(extractor(nn.Dropout(0.2)), MLP((8, 6, 3), dropout=0.3))
    way = EndToEnd(WithCentre(), head_noise=0.05)
    schedule = partial(torch.optim.lr_scheduler.MultiStepLR, milestones=[1, 2], gamma=0.5)
    return fit(model, way, images(0.2), epochs=4, batch_size=4, schedule=schedule, seed=1, limits=Limits(max_norm=2.0),
               validation=images(0.0), run_dir=folder, checkpoint_every=EVERY["joint"], **how)  # fmt: skip


def anonymous(folder, **how):
    """Two weak heads, each pair used for three steps; checkpoints fall within these cycles."""
    model = Classifier(extractor(), MLP((8, 6, 3)))
    heads = GradientHeads(HeadTraining(steps=6, lr=0.05, momentum=0.9))
    final = HeadTraining(steps=30, lr=0.03, momentum=0.9, batch_size=8)
    way = FOCA(weak_heads=heads, per_class=2, heads=2, reuse=3, final_head=final)
    optimizer = partial(torch.optim.Adam, lr=3e-3)
    return fit(model, way, images(0.0), epochs=4, batch_size=4, optimizer=optimizer, seed=1,
               limits=Limits(clip_norm=1.0), run_dir=folder, checkpoint_every=EVERY["anonymous"], **how)  # fmt: skip


TRAININGS = {"joint": joint, "anonymous": anonymous}
EVERY = {"joint": 5, "anonymous": 4}  # steps between checkpoints
STEPS = 28  # 27 images in batches of 4, four epochs


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def at_step(step):
    """A plan to kill from within the progress call of `step`."""
    return lambda: lambda progress: die() if progress.step == step else None


def at_rename(wanted, count):
    """A plan to kill just before the `count`-th thing gets a name that is `wanted`."""
    left = iter(range(count - 1, -(10**6), -1))

    def touch(event, arguments):
        if event == "os.rename" and wanted(Path(arguments[1]).name) and next(left) == 0:
            die()

    def plan():
        sys.addaudithook(touch)
        return lambda progress: None

    return plan


RENAMES = {
    "checkpoint 1": (str.isdigit, 1),
    "checkpoint 2": (str.isdigit, 2),
    "checkpoint 4": (str.isdigit, 4),
    "weights": ("model.safetensors".__eq__, 1),
    "result": ("result.json".__eq__, 1),
}


def in_child(train, folder, plan=None):
    """Train in a child process; which steps it made, and whether it was killed."""
    reader, writer = os.pipe()
    if child := os.fork():
        os.close(writer)
        with os.fdopen(reader) as pipe:
            steps = [int(line) for line in pipe]
        return steps, os.WIFSIGNALED(os.waitpid(child, 0)[1])
    then = plan() if plan else lambda progress: None

    def on_step(progress):
        os.write(writer, f"{progress.step}\n".encode())
        then(progress)

    train(folder, on_step=on_step)
    os._exit(0)


def outcome(folder):
    return {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in FILES}


def killed_and_resumed(train, folder, plan):
    """Kill once, then train to the end: what was left, where the second part began, and the files."""
    made, killed = in_child(train, folder, plan)
    left = [path.name for path in folder.glob("checkpoints/*")]
    again, killed_again = in_child(train, folder)
    return {
        "killed": killed and not killed_again,
        "made": made,
        "kept": max([int(name) for name in left if name.isdigit()], default=0),
        "unnamed": sum(name.startswith(".tmp-") for name in left),
        "again": again,
        "files": outcome(folder),
    }


def report(train, folder, matrix):
    """Everything that the tests ask of one training; `matrix` is every step and every rename."""
    made, _ = in_child(train, folder / "straight")
    every = range(1, STEPS + 1)
    drawn = [*every] if matrix else sorted(random.Random(train.__name__).sample(every, KILLS))
    renames = RENAMES if matrix else {name: RENAMES[name] for name in ("checkpoint 2", "weights", "result")}
    found = {
        "made": made,
        "straight": outcome(folder / "straight"),
        "drawn": drawn,
        "at_step": [killed_and_resumed(train, folder / f"step {s}", at_step(s)) for s in drawn],
        "at_rename": {
            name: killed_and_resumed(train, folder / name, at_rename(*plan)) for name, plan in renames.items()
        },
    }
    for step in drawn:
        in_child(train, folder / "often", at_step(step))
    in_child(train, folder / "often")
    in_child(train, folder / "elsewhere", at_step(17))
    return found | {"often": outcome(folder / "often")}


@pytest.fixture(
    scope="module",
    params=[
        *((name, "few") for name in TRAININGS),
        *(pytest.param((name, "matrix"), marks=pytest.mark.long) for name in TRAININGS),
    ],
    ids="-".join,
)
def killed(request):
    """A training's name, its folder and what its processes left there."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, *request.param, folder]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=600)
        yield request.param[0], Path(folder), json.loads(done.stdout)


def test_without_a_kill_every_step_is_made_once(killed):
    assert killed[2]["made"] == list(range(1, STEPS + 1))


def test_killed_at_any_step_it_ends_with_the_same_bytes(killed):
    name, _, found = killed
    every = EVERY[name]
    assert len(found["at_step"]) >= KILLS
    for step, run in zip(found["drawn"], found["at_step"], strict=True):
        assert run["killed"]
        assert run["made"] == list(range(1, step + 1))
        assert run["kept"] == min(step, STEPS - 1) // every * every
        assert run["again"] == list(range(run["kept"] + 1, STEPS + 1))  # it went on and did not start over
        assert run["files"] == found["straight"]


def test_killed_before_a_checkpoint_has_its_name_it_goes_on_from_the_one_before(killed):
    name, _, found = killed
    every = EVERY[name]
    counts = [int(moment[-1]) for moment in found["at_rename"] if moment.startswith("checkpoint")]
    assert counts
    for count in counts:
        run = found["at_rename"][f"checkpoint {count}"]
        assert run["killed"]
        assert (run["kept"], run["unnamed"]) == ((count - 1) * every, 1)
        assert run["made"][-1] == count * every - 1  # that step's progress was not reported any more
        assert run["again"] == list(range(run["kept"] + 1, STEPS + 1))
        assert run["files"] == found["straight"]


def test_killed_while_it_finishes_it_finishes_with_the_same_bytes(killed):
    name, _, found = killed
    for moment in ("weights", "result"):
        run = found["at_rename"][moment]
        assert run["killed"]
        assert run["made"] == list(range(1, STEPS + 1))
        assert run["again"] == list(range((STEPS - 1) // EVERY[name] * EVERY[name] + 1, STEPS + 1))
        assert run["files"] == found["straight"]


def test_killed_again_and_again_in_one_run_it_ends_with_the_same_bytes(killed):
    assert killed[2]["often"] == killed[2]["straight"]


def test_resumed_in_another_program_it_ends_with_the_same_bytes(killed):
    name, folder, found = killed
    steps = []
    TRAININGS[name](folder / "elsewhere", on_step=lambda progress: steps.append(progress.step))
    assert steps == list(range(17 // EVERY[name] * EVERY[name] + 1, STEPS + 1))
    assert outcome(folder / "elsewhere") == found["straight"]


if __name__ == "__main__":
    torch.set_num_threads(1)
    import torch._dynamo  # once here, because every optimiser's first step imports it, which is slow

    name, which, folder = sys.argv[1:]
    setattr(os, "fsync", lambda descriptor: None)  # noqa: B010 - only a power cut could tell
    sys.stdout.write(json.dumps(report(TRAININGS[name], Path(folder), which == "matrix")))
