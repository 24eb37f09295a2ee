"""Several processes: extractors move together, weak heads stay apart.

Run as a script this file is one of two processes.
"""

from functools import partial
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

from clearance import LossTerms
from clearance.data import gaussian_images
from clearance.heads import MLP, HeadTraining
from clearance.losses import Loss
from clearance.losses.cross_entropy import cross_entropy
from clearance.models import Classifier
from clearance.training import FOCA, EndToEnd, Limits, fit
from two_processes import close, play, told_by_both  # type: ignore[import-not-found]  # see pytest's path

SGD = partial(torch.optim.SGD, lr=0.1, momentum=0.9)
DATA = gaussian_images(class_count=3, per_class=9, shape=(1, 4, 4))  # 27 images: batches of 10, 10 and 7

pytestmark = pytest.mark.skipif(
    not (dist.is_available() and dist.is_gloo_available()), reason="needs torch.distributed with gloo"
)


class Tempered(Loss):
    """Cross-entropy with a learned temperature."""

    def __init__(self):
        super().__init__()
        self.temperature = nn.Parameter(torch.ones(()))

    def forward(self, outputs, labels):
        return LossTerms({"loss": cross_entropy(outputs.logits * self.temperature, labels).mean()})


def model_of(seed, *extra):
    torch.manual_seed(seed)
    return Classifier(
        nn.Sequential(nn.Flatten(), nn.Linear(16, 6), *extra, nn.ReLU()), MLP((6, 5, 3)), 0.5, 0.25
    )


def numbers(model):
    return {name: value.double().tolist() for name, value in model.state_dict().items()}


def joint(rank):
    """Plain training; each process begins with weights of its own."""
    loss = Tempered()
    result = fit(model_of(rank), EndToEnd(loss), DATA, epochs=3, batch_size=10, optimizer=SGD,
                 limits=Limits(clip_norm=0.5, max_norm=1.5))  # fmt: skip
    weights = numbers(result.model) | {"temperature": float(loss.temperature.detach())}
    return {"weights": weights, "history": result.history}


def anonymous(rank):
    """FOCA with batch normalisation, step by step; each process its half of a batch."""
    model = model_of(rank, nn.BatchNorm1d(6))
    way = FOCA(per_class=2, heads=2, final_head=HeadTraining(steps=20))
    training: Any = way.start(model, DATA, SGD(way.trainable(model)), way.generators(0))
    heads = []
    for step in range(4):
        rows = torch.arange(step, step + 20)[rank::2]
        training.step(*DATA.batch(rows))
        heads.append(training.heads.parameters["0.weight"].tolist())
    parameters = {name: value.tolist() for name, value in model.extractor.named_parameters()}
    return {"extractor": parameters, "heads": heads}


def anonymous_fit(rank):
    """The same through ``fit``."""
    way = FOCA(per_class=2, final_head=HeadTraining(steps=20))
    norm, statistics = nn.BatchNorm1d(6), []
    model = model_of(rank, norm, nn.Dropout(0.2))

    def look(progress):
        assert norm.running_mean is not None
        statistics.append(norm.running_mean.tolist())

    result = fit(model, way, DATA, epochs=2, batch_size=10, on_step=look)
    seen = [result.history, result.diagnostics, str(result.status), statistics[2::3]]  # at the ends of epochs
    return {"weights": numbers(result.model), "seen": seen, "within": statistics[0]}


class Wild:
    """Draws heads that have all diverged, in the second process alone."""

    def __init__(self, bad):
        self.bad, self.inner = bad, FOCA().weak_heads

    def draw(self, *arguments):
        trained = self.inner.draw(*arguments)
        return type(trained)(trained.stack, torch.full_like(trained.diverged, fill_value=self.bad))


def failing(rank):
    """One process cannot draw heads: none may wait for it."""
    result = fit(model_of(0), FOCA(weak_heads=Wild(rank == 1), per_class=2), DATA, epochs=1, batch_size=10)
    return str(result.status)


def stopping(rank):
    """The second process is told to stop."""
    stop = "stop" if rank == 1 else None
    result = fit(model_of(0), EndToEnd(), DATA, epochs=1, batch_size=10, on_step=lambda progress: stop)
    return str(result.status)


def refusing(rank):
    """What several processes cannot do, in words."""
    said = []
    for how in ({"batch_size": 3}, {"batch_size": 4, "run_dir": "nowhere"}):
        try:
            fit(model_of(rank), EndToEnd(), DATA, epochs=1, **how)
        except ValueError as error:
            said.append(str(error))
    return said


SCENES = (joint, anonymous, anonymous_fit, failing, stopping, refusing)


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """What each of two processes has to tell."""
    return told_by_both(__file__, tmp_path_factory.mktemp("processes"))


def test_two_halves_of_a_batch_train_like_the_whole(told):
    alone = joint(0)
    for each in told:
        close(each["joint"]["weights"], alone["weights"])
        for row, expected in zip(each["joint"]["history"], alone["history"], strict=True):
            assert row == pytest.approx(expected, rel=1e-5)
    assert told[0]["joint"] == told[1]["joint"]
    assert alone["weights"]["temperature"] != 1


def test_extractors_are_equal_to_the_bit_and_heads_differ(told):
    first, second = (each["anonymous"] for each in told)
    assert first["extractor"] == second["extractor"]
    for one, other in zip(first["heads"], second["heads"], strict=True):
        assert one[0] != other[0]
        assert one[1] != other[1]
    untrained = dict(model_of(0, nn.BatchNorm1d(6)).extractor.named_parameters())
    assert first["extractor"]["1.weight"] != untrained["1.weight"].tolist()


def test_the_first_process_draws_the_heads_that_one_alone_would_draw(told):
    alone = anonymous(0)
    torch.testing.assert_close(
        torch.tensor(told[0]["anonymous"]["heads"][0]), torch.tensor(alone["heads"][0])
    )


def test_all_processes_end_with_the_same_model_and_tell_the_same(told):
    first, second = (each["anonymous_fit"] for each in told)
    assert first["weights"] == second["weights"]
    assert first["seen"] == second["seen"]
    assert [len(part) for part in first["seen"][:2]] == [2, 2]
    assert first["within"] != second["within"]  # each normalises its own share


def test_where_one_process_fails_or_stops_all_do(told):
    for each in told:
        assert each["failing"] == "diverged at step 1: term weak_heads is not finite"
        assert each["stopping"] == "stopped at step 1: asked to"


def test_what_several_processes_cannot_do_is_refused(told):
    for each in told:
        small, kept = each["refusing"]
        assert small.startswith("`batch_size` must be at least 4 with 2 processes")
        assert kept.startswith("`run_dir` must be None with 2 processes")


if __name__ == "__main__":
    play(SCENES)
