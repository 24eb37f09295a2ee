"""Several processes: two halves of a batch train like the whole; weak heads stay apart.

Run as a script this file is one of several processes, which play scenes and keep what they saw as JSON.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from clearance import LossTerms, Outputs, audit
from clearance.audits import Accuracy, MinimalPerturbation
from clearance.data import gaussian_images
from clearance.heads import MLP, GaussianMixture, HeadTraining
from clearance.integrations._hosted import Audits
from clearance.losses import (
    CenterLoss,
    ContrastiveLoss,
    CrossEntropyLoss,
    DistanceSettings,
    GaussianMixtureLoss,
    HingeLoss,
    LargeMarginLoss,
    LargeMarginSoftmaxLoss,
    Loss,
    SquaredErrorLoss,
    SumLoss,
    TripletLoss,
)
from clearance.losses.cross_entropy import cross_entropy
from clearance.models import Classifier
from clearance.training import FOCA, EndToEnd, Limits, fit

COUNT = 2
SECONDS = 180
SGD = partial(torch.optim.SGD, lr=0.1, momentum=0.9)
SLOW_SGD = partial(torch.optim.SGD, lr=0.05, momentum=0.9)
UNEVEN = gaussian_images(class_count=3, per_class=9, shape=(1, 4, 4))  # 27 images: batches of 10, 10 and 7
EVEN = gaussian_images(class_count=3, per_class=8, shape=(1, 4, 4))

pytestmark = pytest.mark.skipif(
    not (dist.is_available() and dist.is_gloo_available()), reason="needs torch.distributed with gloo"
)


def numbers(module):
    return {name: value.double().tolist() for name, value in module.state_dict().items()}


def close(first, second):
    """Numbers by name agree as far as two orders of summation let them."""
    assert first.keys() == second.keys()
    for name in first:
        one, other = torch.tensor(first[name]), torch.tensor(second[name])
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


def share_of_a_batch(rank, count):
    """Each process's share of 12 images; the halves hold classes in unequal numbers."""
    images, labels = EVEN.batch(torch.arange(0, 24, 2))
    share = slice(rank * 12 // count, (rank + 1) * 12 // count)
    return images[share], labels[share]


class WithLoss(nn.Module):
    """What torch's own wrapper wants: the loss inside the wrapped module's forward pass."""

    def __init__(self, model, loss):
        super().__init__()
        self.model, self.loss = model, loss

    def forward(self, images, labels):
        return self.loss(self.model.outputs(images, self.loss.layers), labels).total


def gradient(module, rank, count, **settings):
    """Of one batch, each process with its share of it."""
    place = DistributedDataParallel(module, **settings) if count > 1 else module
    place(*share_of_a_batch(rank, count)).backward()
    named = module.model.named_parameters()
    return {name: one.grad.double().tolist() for name, one in named if one.grad is not None}


# --------------------------------------------------------------------------------- end to end, and FOCA


class Tempered(Loss):
    """Cross-entropy with a learned temperature."""

    def __init__(self):
        super().__init__()
        self.temperature = nn.Parameter(torch.ones(()))

    def forward(self, outputs, labels):
        return LossTerms({"loss": cross_entropy(outputs.logits * self.temperature, labels).mean()})


def perceptron(seed, *extra):
    torch.manual_seed(seed)
    return Classifier(
        nn.Sequential(nn.Flatten(), nn.Linear(16, 6), *extra, nn.ReLU()), MLP((6, 5, 3)), 0.5, 0.25
    )


def joint(rank):
    """Plain training; each process begins with weights of its own."""
    loss = Tempered()
    result = fit(perceptron(rank), EndToEnd(loss), UNEVEN, epochs=3, batch_size=10, optimizer=SGD,
                 limits=Limits(clip_norm=0.5, max_norm=1.5))  # fmt: skip
    weights = numbers(result.model) | {"temperature": float(loss.temperature.detach())}
    return {"weights": weights, "history": result.history}


def anonymous(rank):
    """FOCA with batch normalisation, step by step; each process its half of a batch."""
    model = perceptron(rank, nn.BatchNorm1d(6))
    way = FOCA(per_class=2, heads=2, final_head=HeadTraining(steps=20))
    training: Any = way.start(model, UNEVEN, SGD(way.trainable(model)), way.generators(0))
    heads = []
    for step in range(4):
        rows = torch.arange(step, step + 20)[rank::2]
        training.step(*UNEVEN.batch(rows))
        heads.append(training.heads.parameters["0.weight"].tolist())
    parameters = {name: value.tolist() for name, value in model.extractor.named_parameters()}
    return {"extractor": parameters, "heads": heads}


def anonymous_fit(rank):
    """The same through ``fit``."""
    way = FOCA(per_class=2, final_head=HeadTraining(steps=20))
    norm, statistics = nn.BatchNorm1d(6), []
    model = perceptron(rank, norm, nn.Dropout(0.2))

    def look(progress):
        assert norm.running_mean is not None
        statistics.append(norm.running_mean.tolist())

    result = fit(model, way, UNEVEN, epochs=2, batch_size=10, on_step=look)
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
    result = fit(
        perceptron(0), FOCA(weak_heads=Wild(rank == 1), per_class=2), UNEVEN, epochs=1, batch_size=10
    )
    return str(result.status)


def stopping(rank):
    """The second process is asked to stop."""
    stop = "stop" if rank == 1 else None
    result = fit(perceptron(0), EndToEnd(), UNEVEN, epochs=1, batch_size=10, on_step=lambda progress: stop)
    return str(result.status)


def refusing(rank):
    """What several processes cannot do, in words."""
    said = []
    try:
        fit(perceptron(rank), EndToEnd(), UNEVEN, epochs=1, batch_size=3)
    except ValueError as error:
        said.append(str(error))
    return said


KEPT = {
    "plain": lambda: EndToEnd(head_noise=0.1),
    "foca": lambda: FOCA(per_class=2, reuse=3, pool=12, final_head=HeadTraining(steps=5)),
}


def kept(rank, folder):
    """Runs that are stopped between two checkpoints, and go on: what is drawn differs between processes."""
    found: dict[str, Any] = {}
    for name, way in KEPT.items():

        def trained(place, stop=None, way=way):
            torch.manual_seed(0)
            wide = (nn.Linear(6, 128), nn.Tanh(), nn.Linear(128, 6))
            model = perceptron(0, nn.BatchNorm1d(6), nn.Dropout(0.2), *wide)
            torch.manual_seed(rank)  # of the caller: it must not matter
            return fit(
                model, way(), UNEVEN, epochs=4, batch_size=10, run_dir=folder / place, checkpoint_every=2,
                on_step=lambda progress: "stop" if progress.step == stop else None,
            )  # fmt: skip

        whole = trained(f"{name}-whole")
        first = trained(f"{name}-resumed", stop=5)
        resumed, again = trained(f"{name}-resumed"), trained(f"{name}-resumed")
        found[name] = {
            "whole": numbers(whole.model), "resumed": numbers(resumed.model), "again": numbers(again.model),
            "history": [whole.history, resumed.history, again.history],
            "said": [str(one.status) for one in (whole, first, resumed, again)],
        }  # fmt: skip
    return found


def exact(rank):
    """Every loss that draws nothing, in float64: batches of unequal shares."""
    found: dict[str, Any] = {}
    for name, (make, head) in EXACT.items():
        torch.manual_seed(0)
        layers = nn.Sequential(nn.Flatten(), nn.Linear(16, 6), nn.Tanh())
        model = Classifier(layers, head(), 0.5, 0.25).double()
        loss = make().double()
        result = fit(model, EndToEnd(loss), UNEVEN, epochs=2, batch_size=10, optimizer=SLOW_SGD)
        found[name] = numbers(result.model) | {f"loss.{key}": one for key, one in numbers(loss).items()}
        found[name]["history"] = [list(row.values()) for row in result.history]
    return found


EXACT: dict[str, tuple[Callable[[], Loss], Callable[[], nn.Module]]] = {
    "cross-entropy": (CrossEntropyLoss, lambda: nn.Linear(6, 3)),
    "squared error": (SquaredErrorLoss, lambda: nn.Linear(6, 3)),
    "hinge": (lambda: HingeLoss(0.5, "sum"), lambda: nn.Linear(6, 3)),
    "large-margin softmax": (LargeMarginSoftmaxLoss, lambda: nn.Linear(6, 3, bias=False)),
    "center": (lambda: CenterLoss(6, 3, weight=0.1), lambda: nn.Linear(6, 3)),
    "center, gradient": (lambda: CenterLoss(6, 3, weight=0.1, update="gradient"), lambda: nn.Linear(6, 3)),
    "contrastive": (lambda: ContrastiveLoss(weight=0.3), lambda: nn.Linear(6, 3)),
    "triplet": (TripletLoss, lambda: nn.Linear(6, 3)),
    "triplet, all": (lambda: TripletLoss(1.0, "all"), lambda: nn.Linear(6, 3)),
    "gaussian mixture": (lambda: GaussianMixtureLoss(0.3), lambda: GaussianMixture(6, 3, "class_diagonal")),
    "gaussian mixture, full": (lambda: GaussianMixtureLoss(0.3), lambda: GaussianMixture(6, 3, "full")),
    "large margin": (
        lambda: LargeMarginLoss(("input", "extractor.1"), gamma=0.8, top_k=2),
        lambda: nn.Linear(6, 3),
    ),
    "sum": (
        lambda: SumLoss({"center": CenterLoss(6, 3), "pairs": ContrastiveLoss(cross_entropy_weight=0.0)}),
        lambda: nn.Linear(6, 3),
    ),
}


def audited(rank):
    """Audits whose images are shared out between the processes."""
    audits = [Accuracy(), MinimalPerturbation(images=100, steps=2, queries=4)]
    many = gaussian_images(class_count=3, per_class=50, shape=(1, 4, 4))
    card = audit(perceptron(0), train=many, test=gaussian_images(class_count=3, per_class=50, shape=(1, 4, 4), seed=1),
                 audits=audits, verbose=False)  # fmt: skip
    return [repr(one) for one in card.measurements]


def audited_by_the_first(rank):
    """As the callbacks of other packages do: the others go on, and wait for nothing."""
    train, test = (
        gaussian_images(class_count=3, per_class=50, shape=(1, 4, 4), seed=seed) for seed in (0, 1)
    )
    audits = Audits(train, test, 1, None, None, {"audits": ["accuracy", "class_scatter"], "verbose": False})
    card = audits.audit(perceptron(0), 1) if rank == 0 else None
    return 0 if card is None else len(card.measurements)


# --------------------------------------------------------------------------------------------- margins


def linear(seed):
    torch.manual_seed(seed)
    return Classifier(nn.Sequential(nn.Flatten(), nn.Linear(16, 6), nn.ReLU()), nn.Linear(6, 3), 0.5, 0.25)


def fixed_margins(rank):
    """Given margins: each process begins with weights of its own, and all continue with the first's."""
    loss = LargeMarginLoss(("input", "extractor.1", "features"), gamma=0.8, top_k=2, every=2)
    return numbers(fit(linear(rank), EndToEnd(loss), EVEN, epochs=2, batch_size=12, optimizer=SLOW_SGD).model)


def margins_from_data(rank):
    """Margins from data are one number in all processes."""
    loss = LargeMarginLoss(("input",), gamma={"quantile": 0.5, "batches": 2})
    fit(linear(0), EndToEnd(loss), EVEN, epochs=1, batch_size=12, optimizer=SLOW_SGD)
    return numbers(loss)


WRAPPERS = {
    "plain": ({}, "detach"),
    "unused parameters looked for": ({"find_unused_parameters": True}, "detach"),
    "static graph": ({"static_graph": True}, "detach"),
    "denominator differentiated": ({}, "full"),
}


def wrapped(rank, count=2):
    """One gradient through DistributedDataParallel as it comes in kinds."""
    found: dict[str, Any] = {}
    for name, (settings, denominator) in WRAPPERS.items():
        distance = DistanceSettings(denominator=denominator)  # type: ignore[arg-type]
        loss = LargeMarginLoss(("input", "extractor.1"), gamma=0.8, top_k=2, distance=distance)
        found[name] = gradient(WithLoss(linear(0), loss), rank, count, **settings)
    found[AROUND] = around_the_classifier(rank, count)
    return found


AROUND = "around the classifier, called with layers"


def around_the_classifier(rank, count):
    """The gradient of a margin whose outputs come from the wrapper itself, which has to average."""
    model, loss = linear(0), LargeMarginLoss(("input", "extractor.1"), gamma=0.8, top_k=2)
    place = DistributedDataParallel(model) if count > 1 else model
    images, labels = share_of_a_batch(rank, count)
    loss(place(images, layers=loss.layers), labels).total.backward()
    return {name: one.grad.double().tolist() for name, one in model.named_parameters()}


# ------------------------------------------------------------------------------------ centres and mixtures


def centres(rank, count=2):
    """After three of the paper's updates."""
    images, labels = share_of_a_batch(rank, count)
    loss, features = CenterLoss(16, 3), images.flatten(1)
    for _ in range(3):
        loss.after_step(Outputs(features, features[:, :3], nn.Identity()), labels)
    return {"centres": loss.centres.double().tolist()}


def mixtures(rank, count=2):
    """One gradient of a mixture with a diagonal, and with one of each class."""
    found: dict[str, Any] = {}
    for covariance in ("class_diagonal", "diagonal"):
        torch.manual_seed(0)
        extractor = nn.Sequential(nn.Flatten(), nn.Linear(16, 6), nn.ReLU())
        model = Classifier(extractor, GaussianMixture(6, 3, covariance), 0.5, 0.25)
        loss = WithLoss(model, GaussianMixtureLoss(0.3))
        found |= {f"{covariance} {k}": one for k, one in gradient(loss, rank, count).items()}
    return found


SCENES = (
    joint, anonymous, anonymous_fit, failing, stopping, refusing, fixed_margins, margins_from_data, wrapped, centres,
    mixtures, exact, audited, audited_by_the_first,
)  # fmt: skip


def play():
    """One of the processes: every scene of its rank; more than two only stop and go on.

    Ends without taking the interpreter down: threads of torch that ask for its lock then are cut off in the midst of
    C++, which now and then aborts a process that has done all its work.
    """
    rank, count, folder = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    torch.set_num_threads(1)
    store = dist.FileStore(str(folder / "store"), count)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=count)
    results: dict[str, Any] = {scene.__name__: scene(rank) for scene in (SCENES if count == COUNT else ())}
    results["kept"] = kept(rank, folder / "runs")
    (folder / f"{rank}.json").write_text(json.dumps(results))
    dist.barrier()
    dist.destroy_process_group()
    sys.stderr.flush()
    os._exit(0)


def played(count, folder):
    """The results of so many processes, by the names of scenes."""
    command = [sys.executable, str(Path(__file__).resolve())]
    every = [
        subprocess.Popen(
            [*command, str(rank), str(count), str(folder)],
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(count)
    ]
    try:
        errors = [process.communicate(timeout=SECONDS)[1] for process in every]
    finally:
        for process in every:
            process.kill()
            process.communicate()
    assert [process.returncode for process in every] == [0] * count, errors
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(count)]


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    return played(COUNT, tmp_path_factory.mktemp("processes"))


@pytest.fixture(scope="module")
def alone():
    return exact(0)


def test_two_halves_of_a_batch_train_like_the_whole(results):
    alone = joint(0)
    for each in results:
        close(each["joint"]["weights"], alone["weights"])
        for row, expected in zip(each["joint"]["history"], alone["history"], strict=True):
            assert row == pytest.approx(expected, rel=1e-5)
    assert results[0]["joint"] == results[1]["joint"]
    assert alone["weights"]["temperature"] != 1


def test_extractors_are_equal_to_the_bit_and_heads_differ(results):
    first, second = (each["anonymous"] for each in results)
    assert first["extractor"] == second["extractor"]
    for one, other in zip(first["heads"], second["heads"], strict=True):
        assert one[0] != other[0]
        assert one[1] != other[1]
    untrained = dict(perceptron(0, nn.BatchNorm1d(6)).extractor.named_parameters())
    assert first["extractor"]["1.weight"] != untrained["1.weight"].tolist()


def test_the_first_process_draws_the_heads_that_one_alone_would_draw(results):
    alone = anonymous(0)
    torch.testing.assert_close(
        torch.tensor(results[0]["anonymous"]["heads"][0]), torch.tensor(alone["heads"][0])
    )


def test_all_processes_end_with_the_same_model_and_results(results):
    first, second = (each["anonymous_fit"] for each in results)
    assert first["weights"] == second["weights"]
    assert first["seen"] == second["seen"]
    assert [len(part) for part in first["seen"][:2]] == [2, 2]
    assert first["within"] != second["within"]  # each normalises its own share


def test_where_one_process_fails_or_stops_all_do(results):
    for each in results:
        assert each["failing"] == "diverged at step 1: term weak_heads is not finite"
        assert each["stopping"] == "stopped at step 1: asked to"


def test_what_several_processes_cannot_do_is_refused(results):
    for each in results:
        (small,) = each["refusing"]
        assert small.startswith("`batch_size` must be at least 4 with 2 processes")


@pytest.mark.slow
def test_a_run_of_three_processes_resumes_to_the_same_bits(tmp_path):
    # the sum of three numbers depends on their order, which must be that of the uninterrupted run
    results = played(3, tmp_path)
    for name in KEPT:
        check_resumed([each["kept"][name] for each in results])


@pytest.mark.parametrize("name", KEPT)
def test_a_run_of_two_processes_resumes_to_the_same_bits(results, name):
    check_resumed([each["kept"][name] for each in results])
    whole, stopped, *resumed = results[0]["kept"][name]["said"]
    assert stopped == "stopped at step 5: asked to"
    assert "at step 12" in whole
    assert resumed == [whole, whole]


def check_resumed(results):
    first = results[0]
    assert all(other == first for other in results)
    assert first["whole"] == first["resumed"] == first["again"]
    assert first["history"][0] == first["history"][1] == first["history"][2]


@pytest.mark.parametrize("name", EXACT)
def test_losses_that_draw_nothing_train_like_the_joint_batch(results, alone, name):
    for each in results:
        assert each["exact"][name].keys() == alone[name].keys()
        for key, expected in alone[name].items():
            one, other = (
                torch.tensor(values, dtype=torch.float64) for values in (each["exact"][name][key], expected)
            )
            torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


def test_audits_of_two_processes_find_what_one_finds(results):
    alone = audited(0)
    assert [each["audited"] for each in results] == [alone, alone]


def test_where_only_the_first_process_audits_no_other_is_waited_for(results):
    assert results[0]["audited_by_the_first"] > 0


def test_margins_of_two_halves_train_like_those_of_the_whole(results):
    alone = fixed_margins(0)
    assert alone != numbers(linear(0))
    for each in results:
        close(each["fixed_margins"], alone)


def test_margins_from_data_are_averaged_over_processes(results):
    assert results[0]["margins_from_data"] == results[1]["margins_from_data"]
    assert results[0]["margins_from_data"]["margins.total"][0] > 0


@pytest.mark.parametrize("kind", [*WRAPPERS, AROUND])
def test_torchs_own_wrapper_averages_the_gradient_once(results, kind):
    """Sweeps ask for activations, so its hooks on parameters run in the final backward alone."""
    alone = wrapped(0, count=1)[kind]
    for each in results:
        close(each["wrapped"][kind], alone)


@pytest.mark.parametrize("scene", [centres, mixtures])
def test_centres_and_mixtures_of_two_halves_move_like_those_of_the_whole(results, scene):
    alone = scene(0, count=1)
    assert any(torch.tensor(values).any() for values in alone.values())
    for each in results:
        close(each[scene.__name__], alone)


if __name__ == "__main__":
    play()
