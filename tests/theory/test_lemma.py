"""Sato et al. (2019), Lemma 3.1: the last layer's gradient vanishes exactly where the features' does.

The extractor ends in Linear and an increasing activation a; x enters that Linear, z leaves it, f = a(z):

    dL/dW_ij = g_i a'(z_i) x_j,    g = dL/df,

so with a' > 0 and x > 0 everywhere (condition C1) each is 0 where the other is.
"""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from clearance.heads import MLP
from clearance.models import Classifier

LAST = "extractor.3"


@pytest.fixture
def make_model():
    """16 pixels, 7 positive numbers, 5 positive features, an MLP head with 3 logits; float64."""

    def make(activation=nn.Softplus, head=None, seed=0):
        torch.manual_seed(seed)
        extractor = nn.Sequential(
            nn.Flatten(), nn.Linear(16, 7), nn.Softplus(), nn.Linear(7, 5), activation()
        )
        model = Classifier(extractor, head or MLP((5, 6, 3)), mean=0.5, std=0.25)
        with torch.no_grad():
            for value in model.parameters():
                value.normal_(0.0, 0.5)
        return model.double()

    return make


def one_image(seed=0):
    return torch.rand(1, 1, 4, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def gradients(model, image, loss):
    """dL/dW and dL/db of the extractor's last layer, dL/df, x and z, for one sample."""
    outputs = model.outputs(image, ("extractor.2", LAST))
    layer = model.extractor[3]
    found = torch.autograd.grad(loss(outputs.logits), [layer.weight, layer.bias, outputs.features])
    x, z = outputs.activations["extractor.2"], outputs.activations[LAST]
    return found[0], found[1], found[2][0], x[0].detach(), z[0].detach()


def cross_entropy_of_class_1(logits):
    return F.cross_entropy(logits, torch.tensor([1]))


@pytest.mark.parametrize("seed", range(5))
def test_l1_the_last_layers_gradient_of_one_sample_has_rank_one(make_model, seed):
    """It is (g a'(z)) x^T, and g can be read from any of its columns."""
    weight, bias, g, x, z = gradients(make_model(seed=seed), one_image(seed), cross_entropy_of_class_1)
    slope = torch.sigmoid(z)
    torch.testing.assert_close(weight, torch.outer(g * slope, x), rtol=1e-12, atol=1e-15)
    torch.testing.assert_close(bias, g * slope, rtol=1e-12, atol=1e-15)
    torch.testing.assert_close(weight / torch.outer(slope, x), g[:, None].expand(-1, 7), rtol=1e-10, atol=0.0)
    assert torch.linalg.matrix_rank(weight) == 1


def test_l2_where_the_loss_is_flat_in_the_features_the_last_layer_has_no_gradient(make_model):
    model, image = make_model(), one_image()
    target = model(image).detach()  # the squared error of an output with itself is flat
    weight, bias, g, _, _ = gradients(model, image, lambda logits: (logits - target).square().sum())
    assert torch.equal(g, torch.zeros_like(g))
    assert torch.equal(weight, torch.zeros_like(weight))
    assert torch.equal(bias, torch.zeros_like(bias))


def test_l2_where_the_last_layer_has_no_gradient_the_loss_is_flat_in_the_features(make_model):
    """Descend on the last layer's weight alone; at its stationary point dL/df is 0 too."""
    model, image = make_model(head=nn.Linear(5, 1)), one_image()
    layer = model.extractor[3]
    optimizer = torch.optim.SGD([layer.weight], lr=0.02)

    def loss(logits):
        return (logits - 0.3).square().sum()

    start = gradients(model, image, loss)[2]
    for _ in range(400):
        optimizer.zero_grad()
        loss(model(image)).backward()
        optimizer.step()
    weight, _, g, x, z = gradients(model, image, loss)
    assert weight.abs().max() < 1e-12
    assert start.abs().max() > 1e-2
    assert g.abs().max() < 1e-11
    assert (x > 0).all()
    assert (torch.sigmoid(z) > 0.01).all()


def test_l3_a_dead_relu_breaks_it(make_model):
    """Unit 2 is dead: no weight of it has a gradient, and yet the loss is not flat in its feature."""
    model, image = make_model(activation=nn.ReLU), one_image()
    with torch.no_grad():
        model.extractor[3].bias[2] = -100.0
    weight, bias, g, _, z = gradients(model, image, cross_entropy_of_class_1)
    assert z[2] < 0
    assert torch.equal(weight[2], torch.zeros(7, dtype=torch.float64))
    assert bias[2] == 0
    assert abs(g[2]) > 1e-3
