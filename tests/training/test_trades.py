"""TRADES against its formula in slow float64, and adversarial training of digits."""

import copy
import math
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from clearance import LossTerms, load_dataset
from clearance.attacks import PGD
from clearance.heads import MLP
from clearance.losses import Loss
from clearance.models import Classifier
from clearance.research import generator
from clearance.training import TRADES, EndToEnd, fit


def slow_divergence(clean, attacked):
    """sum_c p_c log(p_c / q_c) of one sample, in Python's floats."""
    first, second = ([math.exp(z) for z in row.tolist()] for row in (clean, attacked))
    p, q = ([value / sum(row) for value in row] for row in (first, second))
    return sum(one * math.log(one / other) for one, other in zip(p, q, strict=True))


def test_another_term_of_its_name_is_refused():
    class Named(Loss):
        def forward(self, outputs, labels):
            return LossTerms({"divergence": F.cross_entropy(outputs.logits, labels)})

    way = EndToEnd(Named(), adversarial=TRADES(0.1), adversarial_share=1.0)
    data = load_dataset("digits").subset(torch.arange(20))
    model = Classifier(nn.Flatten(), nn.Linear(64, 10))
    training = way.start(model, data, torch.optim.SGD(model.parameters(), lr=0.1))
    with pytest.raises(ValueError, match="must have no term `divergence`"):
        training.step(data.images, data.labels)


def test_the_term_is_beta_times_the_mean_divergence_of_the_predictions():
    clean, attacked = (
        torch.randn(2, 7, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 3
    )
    expected = sum(slow_divergence(*rows) for rows in zip(clean, attacked, strict=True)) / 7
    assert float(TRADES(0.1, beta=2.5).term(clean, attacked)) == pytest.approx(2.5 * expected, rel=1e-12)
    assert float(TRADES(0.1).term(clean, clean)) == 0


def test_the_gradient_goes_through_both_predictions():
    clean, attacked = (torch.randn(4, 3, dtype=torch.float64).requires_grad_() for _ in range(2))
    assert torch.autograd.gradcheck(TRADES(0.1).term, (clean, attacked))
    one, other = torch.autograd.grad(TRADES(0.1).term(clean, attacked), (clean, attacked))
    assert float(one.abs().max()) > 0.01
    assert float(other.abs().max()) > 0.01


@pytest.mark.parametrize(("share", "count"), [(1.0, 24), (0.25, 6)])
def test_a_step_is_descent_on_the_loss_of_clean_images_and_the_divergence(data, make_model, share, count):
    model = make_model(nn.ReLU())
    twin = copy.deepcopy(model)
    attack = TRADES(0.1, beta=3.0)
    way = EndToEnd(adversarial=attack, adversarial_share=share)
    optimizer = torch.optim.SGD(way.trainable(model), lr=0.1)
    terms = way.start(model, data, optimizer, way.generators(0)).step(data.images, data.labels)
    seed = int(torch.randint(2**31 - 1, (), generator=generator(0, "adversarial")))
    moved = TRADES(0.1, seed=seed).perturbed(twin.eval(), data.images[:count], data.labels[:count])
    clean = twin(data.images)
    pulled = F.kl_div(twin(moved).log_softmax(dim=1), clean[:count].softmax(dim=1), reduction="batchmean")
    own = F.cross_entropy(clean, data.labels)
    (own + 3 * pulled).backward()
    for value, other in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(value, other - 0.1 * other.grad)
    assert list(terms.terms) == ["cross_entropy", "divergence"]
    torch.testing.assert_close(terms.terms["divergence"].detach(), 3 * pulled.detach())


@pytest.mark.parametrize("norm", [math.inf, 2, 1])
def test_the_images_reach_the_edge_where_the_prediction_differs_most(norm):
    """Of two classes and a linear model the divergence grows along the line of the weights alone, on both sides."""
    weight = torch.tensor([[3.0, -2.0, 1.0, 0.5]])
    model = nn.Linear(4, 2, bias=False).eval()
    with torch.no_grad():
        model.weight.copy_(torch.cat([weight, -weight]) / 2)
    images = torch.full((6, 4), 0.5)
    found = TRADES(0.1, norm, steps=40).perturbed(model, images, torch.zeros(6, dtype=torch.int64))
    gap = ((found - images) @ weight.T).flatten().abs()
    dual = {math.inf: 6.5, 2: weight.norm(), 1: 3.0}[norm]
    torch.testing.assert_close(gap, torch.full((6,), 0.1 * float(dual)), rtol=0.02, atol=0)


def test_wrong_settings_are_refused():
    wrong: list[dict[str, Any]] = [{"steps": 0}, {"step": 0.0}, {"beta": -1.0}, {"seed": -1}]
    for settings in wrong:
        with pytest.raises(ValueError, match=f"`{next(iter(settings))}` must"):
            TRADES(0.1, **settings)
    with pytest.raises(ValueError, match="`norm` must be one of inf, 2, 1"):
        TRADES(0.1, 3)


def test_both_ways_learn_the_digits_and_withstand_more_than_plain_training():
    train, test = load_dataset("digits"), load_dataset("digits", "test")
    robust = {}
    for name, attack, rise in (
        ("plain", None, 0),
        ("PGD", PGD(0.15, loss="cross_entropy", steps=3), 30),
        ("TRADES", TRADES(0.15, steps=3), 30),
    ):
        torch.manual_seed(0)
        model = Classifier(nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU()), MLP((64, 10)))
        way = EndToEnd(adversarial=attack, adversarial_share=1.0, adversarial_rise=rise)
        fit(model, way, train, epochs=6, optimizer=partial(torch.optim.Adam, lr=0.01))
        clean = (model(test.images).argmax(dim=1) == test.labels).double().mean()
        assert float(clean) > 0.85, name
        robust[name] = 1 - PGD(0.15, steps=10)(model, test.images, test.labels).success_rate
    assert min(robust["PGD"], robust["TRADES"]) > robust["plain"] + 0.15, robust


def test_targets_are_refused(make_model, data):
    images, labels = data.batch(torch.arange(4))
    with pytest.raises(ValueError, match="`targets` must be None"):
        TRADES(0.1).perturbed(make_model().eval(), images, labels, (labels + 1) % 3)
