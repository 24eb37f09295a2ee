"""What holds for every way to draw weak heads."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from clearance.data import gaussian_images
from clearance.heads import (
    GaussianMixtureHeads,
    GradientHeads,
    RidgeHeads,
)
from clearance.heads.weak import WeakHeads
from clearance.losses import CrossEntropyLoss, SquaredErrorLoss
from clearance.models import Classifier
from clearance.research import feature_unit
from clearance.training import FOCA
from heads.numbers import close
from heads.weak_cases import CASES, D, K, same

PROTOCOL: list[WeakHeads] = [  # for mypy
    GradientHeads(),
    RidgeHeads(),
    GaussianMixtureHeads(),
]


@pytest.fixture(params=CASES)
def case(request):
    return CASES[request.param]


def test_k_heads_come_back_detached_and_intact(case):
    features, labels = case.batches()
    drawn = case.draw(features.requires_grad_(), labels)
    assert len(drawn.stack) == K
    assert drawn.stack(features).shape == (K, features.shape[1], case.classes)
    assert drawn.diverged.tolist() == [False] * K
    assert not any(value.requires_grad for value in drawn.stack.parameters.values())


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16], ids=str)
def test_heads_are_float64_for_float64_and_float32_for_all_others(case, dtype):
    features, labels = case.batches()
    exact = case.draw(features, labels).stack.parameters
    found = case.draw(features.to(dtype), labels).stack.parameters
    expected = torch.float64 if dtype == torch.float64 else torch.float32
    assert {value.dtype for value in found.values()} == {expected}
    tolerance = {torch.float64: 0.0, torch.float32: 1e-4, torch.float16: 0.05}[dtype]
    for name, value in found.items():
        close(value.double(), exact[name].double(), tolerance)


def test_batches_of_other_shapes_are_refused(case):
    features, labels = case.batches()
    for wrong in ((features[0], labels[0]), (features, labels[0])):
        with pytest.raises(ValueError, match=r"`features` must be \(K, n, D\) and `labels` \(K, n\); got "):
            case.draw(*wrong, architecture=nn.Linear(D, case.classes))


def test_the_generator_decides_all_that_is_random(case):
    features, labels = case.batches()
    first, again, other = (case.draw(features, labels, seed=seed) for seed in (0, 0, 1))
    assert same(first, again)
    assert same(first, other) == isinstance(case.heads, RidgeHeads | GaussianMixtureHeads)


def test_heads_read_raw_features(case):
    """On the raw features of its own set a head is right, however large they are."""
    features, labels = case.batches()
    strong = case.heads
    if isinstance(strong, GradientHeads):  # a few steps need not be enough
        strong = replace(strong, training=replace(strong.training, steps=400))
    for c in (1.0, 7.0):
        drawn = case.draw(c * features, labels, strong)
        assert torch.equal(drawn.stack(c * features).argmax(dim=2), labels)


@pytest.mark.parametrize("c", [50.0, 1e-3])
def test_features_times_c_give_the_same_model(case, c):
    """Where the penalty is fixed: once it is multiplied by c^2, and not before."""
    features, labels = case.batches()
    expected = case.draw(features, labels).stack(features)
    close(case.draw(c * features, labels, case.follows(c)).stack(c * features), expected, 1e-8)
    if case.fixed_penalty:
        assert not torch.allclose(case.draw(c * features, labels).stack(c * features), expected, rtol=1e-2)


def test_the_least_unit_weakens_heads_of_smaller_features_and_only_those(case):
    features, labels = case.batches()
    unit = feature_unit(features)
    free, same_unit, larger = (
        case.draw(features, labels, least_unit=bound) for bound in (None, unit, 10 * unit)
    )
    close(same_unit.stack(features), free.stack(features))
    if case.fixed_penalty:
        assert same(larger, free)
    else:
        spread = [drawn.stack(features).std(dim=1).mean() for drawn in (larger, free)]
        assert spread[0] < 0.9 * spread[1]


def test_a_batched_draw_is_a_loop_of_draws(case):
    """Each head alone gives the same, because all sets have one scale; random ones share a stream."""
    features, labels = case.batches()
    together = case.draw(features, labels).stack.parameters
    stream = torch.Generator().manual_seed(0)
    for k in range(K):
        architecture = nn.Linear(D, case.classes)
        alone = case.heads.draw(architecture, features[k : k + 1], labels[k : k + 1], stream)
        for name, value in alone.stack.parameters.items():
            close(value[0], together[name][k])


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_a_head_with_a_set_that_is_not_finite_is_counted_and_harms_no_other(case, bad):
    features, labels = case.batches()
    features[1, 0, 0] = bad
    drawn = case.draw(features, labels)
    assert drawn.diverged.tolist() == [False, True, False]
    logits = drawn.intact()(features[0])
    assert logits.isfinite().all()
    assert (logits.argmax(dim=2)[0] == labels[0]).double().mean() > 1 / case.classes


def test_a_class_that_is_missing_gets_no_sample(case):
    features, labels = case.batches()
    kept = labels[0] != 0
    drawn = case.draw(features[:, kept], labels[:, kept])
    assert not drawn.diverged.any()
    assert (drawn.stack(features[:, kept]).argmax(dim=2) != 0).all()


def test_one_image_a_class_is_enough(case):
    one = replace(case, per_class=1)
    features, labels = one.batches()
    assert not one.draw(features, labels).diverged.any()


@pytest.mark.filterwarnings("ignore:RidgeHeads are too strong")
def test_one_feature_is_enough(case):
    features, labels = case.batches(width=1)
    drawn = case.draw(features, labels)
    assert not drawn.diverged.any()
    assert drawn.stack(features).shape == (K, features.shape[1], case.classes)


def test_every_way_to_draw_heads_serves_foca(case):
    """Two steps from one seed move the extractor, and never the model's own head."""
    data = gaussian_images(class_count=case.classes, per_class=4, shape=(1, 4, 4))
    torch.manual_seed(0)
    model = Classifier(nn.Sequential(nn.Flatten(), nn.Linear(16, D)), nn.Linear(D, case.classes))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    loss = CrossEntropyLoss() if isinstance(case.heads, GradientHeads) else SquaredErrorLoss()
    way = FOCA(loss, case.heads, per_class=case.per_class, heads=2)
    optimizer = torch.optim.SGD(way.trainable(model), lr=0.01)
    training = way.start(model, data, optimizer, way.generators(0))
    for _ in range(2):
        assert training.step(data.images, data.labels).total.isfinite()
    after = model.state_dict()
    assert not torch.equal(after["extractor.1.weight"], before["extractor.1.weight"])
    assert torch.equal(after["head.weight"], before["head.weight"])
