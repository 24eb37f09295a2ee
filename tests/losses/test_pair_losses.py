"""Contrastive and triplet losses against loops over pairs and triplets, and pytorch-metric-learning."""

import pytest
import torch
import torch.nn.functional as F
from pytorch_metric_learning.distances import LpDistance
from pytorch_metric_learning.losses import TripletMarginLoss
from pytorch_metric_learning.miners import TripletMarginMiner
from pytorch_metric_learning.reducers import MeanReducer
from torch import nn

from clearance import Outputs
from clearance.losses import ContrastiveLoss, TripletLoss
from clearance.losses.contrastive import contrastive
from clearance.losses.triplet import triplet


def world(count=14, width=3, classes=4):
    draws = torch.Generator().manual_seed(0)
    features = torch.randn(count, width, generator=draws, dtype=torch.float64)
    features[3] = features[7]  # at distance 0, of two classes
    return features, torch.arange(count) % classes


def outputs_of(features, classes=4):
    return Outputs(features, torch.zeros(len(features), classes), nn.Identity())


@pytest.mark.parametrize("margin", [0.3, 1.0, 3.0])
def test_p20_contrastive_is_the_loop_over_pairs_with_the_distance_not_its_square(margin):
    features, labels = world()
    expected = []
    for i in range(len(labels)):
        for j in range(i + 1, len(labels)):
            d = (features[i] - features[j]).square().sum().sqrt().item()
            expected.append(d**2 / 2 if labels[i] == labels[j] else max(0.0, margin - d) ** 2 / 2)
    assert contrastive(features, labels, margin).tolist() == pytest.approx(expected, rel=1e-12, abs=1e-15)
    found = ContrastiveLoss(margin, 0.7)(outputs_of(features), labels).terms["contrastive"]
    assert found.item() == pytest.approx(0.7 * sum(expected) / len(expected), rel=1e-12)


@pytest.mark.parametrize("mining", ["semi_hard", "all"])
@pytest.mark.parametrize("margin", [0.05, 0.2, 5.0])
def test_p20_triplets_are_the_loop_over_three_with_squared_distances(mining, margin):
    features, labels = world()
    unit = [x / x.norm() for x in features]
    total = count = 0
    for a in range(len(labels)):
        for p in range(len(labels)):
            for n in range(len(labels)):
                if a == p or labels[a] != labels[p] or labels[a] == labels[n]:
                    continue
                near = (unit[a] - unit[p]).square().sum().item()
                far = (unit[a] - unit[n]).square().sum().item()
                if mining == "semi_hard" and not near < far < near + margin:
                    continue
                total, count = total + max(0.0, near - far + margin), count + 1
    assert count > 0
    assert triplet(features, labels, margin, mining).item() == pytest.approx(total / count, rel=1e-12)


@pytest.mark.parametrize("mining", ["semi_hard", "all"])
def test_pytorch_metric_learning_agrees_on_triplets(mining):
    draws = torch.Generator().manual_seed(4)
    features, labels = torch.randn(30, 6, generator=draws, dtype=torch.float64), torch.arange(30) % 5
    distance = LpDistance(normalize_embeddings=True, power=2)
    other = TripletMarginLoss(0.2, distance=distance, reducer=MeanReducer())
    # Its miner measures by its own distance, too, and takes those within the margin.
    miner = TripletMarginMiner(0.2, "semihard" if mining == "semi_hard" else "all", distance=distance)
    leaves = [features.clone().requires_grad_() for _ in range(2)]
    found = triplet(leaves[0], labels, 0.2, mining)
    expected = other(leaves[1], labels, miner(leaves[1], labels) if mining == "semi_hard" else None)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=0.0)
    (found + expected).backward()
    torch.testing.assert_close(leaves[0].grad, leaves[1].grad, rtol=1e-7, atol=1e-10)


def test_only_directions_matter_to_triplets_and_lengths_to_contrastive():
    features, labels = world()
    torch.testing.assert_close(triplet(5 * features, labels), triplet(features, labels))
    assert contrastive(5 * features, labels).sum() > 2 * contrastive(features, labels).sum()


@pytest.mark.parametrize("mining", ["semi_hard", "all"])
def test_separated_classes_have_no_triplet_loss(mining):
    labels = torch.arange(12) % 3
    features = torch.eye(3, dtype=torch.float64)[labels].requires_grad_()
    loss = triplet(features, labels, 0.2, mining)
    loss.backward()
    assert loss.item() == 0.0
    assert features.grad is not None
    assert features.grad.abs().max() == 0


@pytest.mark.parametrize("labels", [[0], [0, 0, 0], [0, 1, 2]])
@pytest.mark.parametrize("loss", [TripletLoss(), TripletLoss(mining="all"), ContrastiveLoss()])
def test_batches_without_triplets_or_pairs_have_a_finite_loss_and_gradient(labels, loss):
    features = torch.randn(len(labels), 4, requires_grad=True)
    terms = loss(outputs_of(features), torch.tensor(labels)).terms
    if isinstance(loss, TripletLoss) or len(labels) == 1:
        assert list(terms.values())[1].item() == 0.0
    sum(terms.values()).backward()
    assert features.grad is not None
    assert features.grad.isfinite().all()


def test_pairs_at_distance_zero_have_a_finite_gradient():
    features = torch.zeros(4, 3, requires_grad=True)
    ContrastiveLoss()(outputs_of(features), torch.arange(4)).total.backward()
    TripletLoss()(outputs_of(features), torch.tensor([0, 0, 1, 1])).total.backward()
    assert features.grad is not None
    assert features.grad.isfinite().all()


def test_narrow_features_are_taken_at_float32():
    features, labels = world()
    for loss in (lambda x: contrastive(x, labels).mean(), lambda x: triplet(x, labels)):
        narrow = features.to(torch.bfloat16)
        assert loss(narrow).dtype == torch.float32
        torch.testing.assert_close(loss(narrow), loss(narrow.float()), rtol=0.0, atol=0.0)


@pytest.mark.parametrize("loss", [ContrastiveLoss, TripletLoss])
def test_weights_multiply_terms(loss):
    features, labels = world()
    plain = loss(weight=1.0)(outputs_of(features), labels).terms
    weighed = loss(weight=0.5, cross_entropy_weight=2.0)(outputs_of(features), labels).terms
    assert [w.item() / p.item() for w, p in zip(weighed.values(), plain.values(), strict=True)] == [2.0, 0.5]
    expected = F.cross_entropy(torch.zeros(14, 4), labels).item()
    assert plain["cross_entropy"].item() == pytest.approx(expected)
    assert len(loss(cross_entropy_weight=0.0)(outputs_of(features), labels).terms) == 1


@pytest.mark.parametrize("loss", [ContrastiveLoss, TripletLoss])
@pytest.mark.parametrize(
    ("name", "value"), [("margin", 0.0), ("weight", -1.0), ("cross_entropy_weight", -1.0)]
)
def test_settings_out_of_range_are_refused(loss, name, value):
    with pytest.raises(ValueError, match=f"`{name}` must be"):
        loss(**{name: value})


def test_an_unknown_mining_is_refused():
    with pytest.raises(ValueError, match="`mining` must be one of 'semi_hard', 'all'; got 'hard'"):
        TripletLoss(mining="hard")  # type: ignore[arg-type]


def test_a_negative_as_near_as_the_positive_is_not_semi_hard():
    features, labels = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]), torch.tensor([0, 0, 1])
    assert triplet(features, labels, 0.2).item() == 0.0
    # anchor 0 pays the margin, anchor 1, whose negative is at distance 0, the squared distance 2 besides
    assert triplet(features, labels, 0.2, "all").item() == pytest.approx((0.2 + 2.2) / 2)


@pytest.mark.parametrize("mining", ["semi_hard", "all"])
def test_triplets_are_mined_in_full_precision_under_autocast(mining):
    torch.manual_seed(0)
    features, labels = torch.randn(40, 6), torch.arange(40) % 4
    expected = triplet(features, labels, mining=mining)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(triplet(features, labels, mining=mining), expected)


def test_a_feature_that_is_no_number_is_seen_though_its_class_has_one_sample():
    features, labels = torch.rand(6, 3), torch.tensor([0, 0, 1, 1, 1, 2])
    features[5, 1] = torch.nan
    assert triplet(features, labels).isnan()


@pytest.mark.parametrize("kind", [ContrastiveLoss, TripletLoss])
@pytest.mark.parametrize("shape", [(4, 2, 1, 1), (5, 2)])
def test_features_of_another_form_are_refused(kind, shape):
    outputs = Outputs(torch.rand(shape), torch.zeros(4, 3), nn.Identity())
    with pytest.raises(
        ValueError, match=r"features must be \(B, D\), with one row for each of the 4 labels; got"
    ):
        kind()(outputs, torch.arange(4) % 3)
