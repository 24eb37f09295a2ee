"""The way from one head to another, against a slow walk with every sample's gradient."""

import pytest
import torch
from torch.func import functional_call, grad, vmap

from audits.draws import partial_sets, trained_alone
from audits.pixel_world import AUDIT, SEED, by_key
from clearance.audits._heads import head_training
from clearance.audits.calibration import fitted_temperature
from clearance.audits.geodesic import METRICS, fisher_rows
from clearance.heads import MLP, HeadStack
from clearance.research import generator

LAYERS = ("1", "2", "3", "all")


def slow_ends(features, train):
    """The head of all images and the three of one image a class, float64."""
    architecture = MLP((16, 8, 7, 3))
    first = HeadStack.initialised(architecture, 1, generator(SEED, "geodesic", "first weights"))
    stream = generator(SEED, "geodesic", "batches", 180)
    order: list[torch.Tensor] = []
    while len(order) < 200:
        order += torch.randperm(180, generator=stream).split(128)
    draws = partial_sets(train, (1,), (3,), SEED)[0].rows
    settings = [head_training(180, 0.03), *(head_training(len(rows), 0.03) for rows in draws)]
    ways = [order, *([rows] * one.steps for rows, one in zip(draws, settings[1:], strict=True))]
    ends = []
    for way, one in zip(ways, settings, strict=True):
        head = first[0].double().requires_grad_(requires_grad=True)
        head = trained_alone(head, features, train.labels, way[: one.steps], one.lr)
        ends.append({name: value.detach().clone() for name, value in head.named_parameters()})
    return ends


def slow_segments(full, few, features, labels):
    """Eq. 16 for every segment: (3 metrics, 4 layers, P), through every sample's gradient."""
    architecture = MLP((16, 8, 7, 3))

    def log_p(parameters, sample, c):
        return functional_call(architecture, parameters, (sample,)).log_softmax(dim=0)[c]

    slope = vmap(grad(log_p), (None, 0, None))
    found = torch.zeros(3, 4, AUDIT.segments, dtype=torch.float64)
    for a in range(AUDIT.segments):
        here = {n: (a * few[n] + (AUDIT.segments - a) * full[n]) / AUDIT.segments for n in full}
        step = {n: (few[n] - full[n]) / AUDIT.segments for n in full}
        chances = functional_call(architecture, here, (features,)).softmax(dim=1)
        for row, prefix in enumerate(("0.", "2.", "4.", "")):
            own = [n for n in full if n.startswith(prefix)]
            along = []
            for c in range(3):
                g = slope(here, features, c)
                along.append(sum((g[n] * step[n]).flatten(1).sum(dim=1) for n in own))
            u = torch.stack(along, dim=1)
            true = u.gather(1, labels[:, None])
            found[0, row, a] = true.square().mean().sqrt()
            found[1, row, a] = (chances * u.square()).sum(dim=1).mean().sqrt()
            found[2, row, a] = sum(step[n].square().sum() for n in own) ** 0.5
    return found


def slow_errors(full, few, features, labels):
    architecture = MLP((16, 8, 7, 3))
    found = []
    for a in range(AUDIT.segments + 1):
        here = {n: full[n] + a / AUDIT.segments * (few[n] - full[n]) for n in full}
        wrong = functional_call(architecture, here, (features,)).argmax(dim=1) != labels
        found.append(float(wrong.double().mean()))
    return found


def calibrated(head, features, labels):
    logits = functional_call(MLP((16, 8, 7, 3)), head, (features,))
    temperature = fitted_temperature(logits, labels)
    return {name: value / temperature if name.startswith("4.") else value for name, value in head.items()}


@pytest.mark.parametrize("reading", ["rms", "raw"])
def test_every_number_is_that_of_a_slow_walk(geodesic_findings, train, held_out, reading):
    """Heads trained one by one in float64 and Eq. 14-16 in words, against heads trained in float32."""
    features = ((train.images - 0.5) / 0.05).flatten(1).double()
    queries = ((held_out.images - 0.5) / 0.05).flatten(1).double()
    if reading == "rms":
        unit = features.square().mean().sqrt() * (16 / 128) ** 0.5
        features, queries = features / unit, queries / unit
    full, *draws = slow_ends(features, train)
    rows = fisher_rows(180, SEED)
    half, other = rows[:90], rows[90:]
    found = by_key(geodesic_findings)
    walks = {"as trained": [slow_segments(full, few, features[rows], train.labels[rows]) for few in draws]}
    if reading == "rms":
        calm = [calibrated(head, features[half], train.labels[half]) for head in (full, *draws)]
        walks["calibrated"] = [
            slow_segments(calm[0], few, features[other], train.labels[other]) for few in calm[1:]
        ]
    for temperature, segments in walks.items():
        for name, values in (
            ("distance", torch.stack(segments).square().sum(dim=-1).sqrt()),
            ("length", torch.stack(segments).sum(dim=-1)),
        ):
            for m, metric in enumerate(METRICS):
                for row, layer in enumerate(LAYERS):
                    measured = found[name, metric, layer, reading, temperature]
                    truth = values[:, m, row]
                    assert measured.value == pytest.approx(float(truth.mean()), rel=1e-3)
                    assert measured.spread == pytest.approx(float(truth.std()), rel=0.05, abs=1e-3)
                    assert measured.n == 3
    errors = torch.tensor([slow_errors(full, few, queries, held_out.labels) for few in draws])
    rise, worst = errors[:, -1] - errors[:, 0], errors.max(dim=1).values - errors[:, 0]
    image = 1.01 / len(held_out)  # float32 against float64: at most one image on the edge of a boundary
    measured = found["path_error_rise", reading, "as trained"]
    assert measured.value == pytest.approx(float(rise.mean()), abs=image)
    assert found["worst_path_error", reading, "as trained"].value == pytest.approx(
        float(worst.mean()), abs=image
    )
    assert found["diverged_heads", reading].value == 0
