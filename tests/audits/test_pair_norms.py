"""The forecast of gradient norms: against dense Gaussian algebra, draws, and what autograd finds."""

import math

import pytest
import torch
from torch import nn

from clearance.audits._pair_norms import PairNorms, alive_norms, chance_nearer
from clearance.models import Classifier


def drawn(count, classes=4, common=0.09, own=0.04, seed=0, apart=1.0):
    """Log ratios from the very law that is fitted, with the labels and the other classes of each image."""
    draws = torch.Generator().manual_seed(seed)
    typical = apart * torch.randn(classes, classes, generator=draws, dtype=torch.float64)
    labels = torch.randint(classes, (count,), generator=draws)
    others = [[j for j in range(classes) if j != k] for k in range(classes)]
    rivals = torch.tensor(others)[labels]
    noise = torch.randn(count, classes, generator=draws, dtype=torch.float64)
    ratios = typical[labels[:, None], rivals]
    ratios = ratios + common**0.5 * noise[:, :1] + own**0.5 * noise[:, 1:]
    return typical, ratios, labels, rivals


def test_the_fit_finds_the_law_that_the_norms_were_drawn_from():
    typical, ratios, labels, rivals = drawn(20_000)
    found = PairNorms.fit(ratios, labels, rivals, 4)
    off = ~torch.eye(4, dtype=torch.bool)
    torch.testing.assert_close(found.typical[off], typical[off], rtol=0, atol=0.02)
    assert found.common == pytest.approx(0.09, rel=0.05)
    assert found.own == pytest.approx(0.04, rel=0.05)


def test_few_images_of_a_pair_do_not_look_surer_than_they_are():
    """Each image is held against the others alone: on average over sets, variances are not too small."""
    found = []
    for seed in range(60):
        _, ratios, labels, rivals = drawn(40, seed=seed, apart=0.0)
        found.append(PairNorms.fit(ratios, labels, rivals, 4))
    assert sum(one.own for one in found) / 60 > 0.039
    assert sum(one.common for one in found) / 60 > 0.08


def test_the_forecast_is_gaussian_conditioning():
    _, ratios, labels, rivals = drawn(3)
    law = PairNorms(drawn(1)[0], common=0.09, own=0.04)
    known = ratios.clone()
    known[0, 1:], known[1, 0], known[2, :] = math.nan, math.nan, math.nan
    mean, deviation = law.forecast(known, labels, rivals)
    covariance = 0.09 + 0.04 * torch.eye(3, dtype=torch.float64)
    for k in range(3):
        seen = ~known[k].isnan()
        typical = law.typical[labels[k], rivals[k]]
        gain = covariance[~seen][:, seen] @ torch.linalg.inv(covariance[seen][:, seen])
        expected = typical[~seen] + gain @ (known[k, seen] - typical[seen])
        torch.testing.assert_close(mean[k, ~seen], expected)
        left = covariance[~seen][:, ~seen] - gain @ covariance[seen][:, ~seen]
        assert float(deviation[k]) == pytest.approx(float(left[0, 0]) ** 0.5)


def test_the_chance_of_a_nearer_rival_is_that_of_draws():
    gaps = torch.tensor([[1.0, 3.0, 0.1, -1.0], [1.0, -1.0, -3.0, -0.1]], dtype=torch.float64)
    logs = torch.tensor([[0.1, 0.3, -0.2, 0.5], [0.2, -0.4, 0.9, 0.0]], dtype=torch.float64)
    deviation = torch.tensor([[0.4], [0.6]], dtype=torch.float64)
    best = torch.tensor([1.2, -0.8], dtype=torch.float64)
    noise = torch.randn(200_000, 2, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    distances = gaps / (logs + deviation * noise).exp()
    expected = (distances < best[:, None]).double().mean(0)
    torch.testing.assert_close(chance_nearer(gaps, logs, deviation, best), expected, rtol=0, atol=0.005)
    assert chance_nearer(gaps, logs, deviation, torch.zeros(2)).tolist() == [[0, 0, 0, 1], [0, 1, 1, 1]]


def test_alive_norms_are_gradients_before_the_rectifier_and_one_under_another_head():
    torch.manual_seed(0)
    model = Classifier(nn.Sequential(nn.Flatten(), nn.Linear(6, 20), nn.ReLU()), nn.Linear(20, 4))
    outputs = model.outputs(torch.rand(5, 1, 2, 3), ("extractor.1",))
    labels = torch.tensor([0, 1, 2, 3, 0])
    rivals = torch.stack([(labels + 1) % 4, (labels + 3) % 4], dim=1)
    found = alive_norms(model.head, outputs.features, labels, rivals)
    for column in range(2):
        own, other = (outputs.logits.gather(1, k[:, None]) for k in (labels, rivals[:, column]))
        (gradient,) = torch.autograd.grad(
            (own - other).sum(), outputs.activations["extractor.1"], retain_graph=True
        )
        torch.testing.assert_close(found[:, column], gradient.norm(dim=1))
    deep = nn.Sequential(nn.Linear(20, 8), nn.ReLU(), nn.Linear(8, 4))
    assert torch.equal(alive_norms(deep, outputs.features, labels, rivals), torch.ones(5, 2))
    assert torch.equal(alive_norms(model.head, torch.zeros(5, 20), labels, rivals), torch.ones(5, 2))
