"""What a way of training is given wrongly: one error each, before anything has moved."""

import pytest
import torch
from torch import nn

from clearance.heads import RidgeHeads
from clearance.losses import CrossEntropyLoss
from clearance.models import Classifier
from clearance.training import FOCA, EndToEnd, fit

WAYS = [EndToEnd, FOCA]


@pytest.fixture(params=WAYS)
def begun(request, data, make_model, sgd):
    """A way of training at work, and the model that it moves."""
    way, model = request.param(), make_model()
    return way.start(model, data, sgd(way, model), way.generators(0)), model


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda images, labels: (images, labels + 1), "`labels` must lie in 0..2 .*got labels from 1 to 3"),
        (lambda images, labels: (images, labels - 1), "`labels` must lie in 0..2 .*got labels from -1 to 1"),
        (lambda images, labels: (images, labels.float()), "`labels` must be an int64 tensor"),
        (lambda images, labels: (images * 255, labels), r"`images` must lie in \[0, 1\].*divide by 255"),
        (lambda images, labels: (images - 0.5, labels), "take the normalisation out"),
        (lambda images, labels: (images * torch.nan, labels), "`images` must be finite"),
        (lambda images, labels: (images, labels[1:]), "got 24 images and 23 labels"),
        (lambda images, labels: (images[:0], labels[:0]), "at least one image"),
    ],
)
def test_a_batch_that_cannot_be_right_is_refused(begun, data, weights, same, change, message):
    training, model = begun
    before = weights(model)
    with pytest.raises(ValueError, match=message):
        training.step(*change(data.images, data.labels))
    assert same(before, weights(model))


def test_a_refused_batch_draws_no_heads(data, make_model, sgd):
    way, model = FOCA(per_class=1), make_model()
    training = way.start(model, data, sgd(way, model), way.generators(0))
    with pytest.raises(ValueError, match="`labels` must lie in"):
        training.step(data.images, data.labels + 1)
    assert training.counts()["drawn_heads"] == 0


@pytest.mark.parametrize("way", WAYS)
def test_a_head_with_too_few_outputs_is_refused(way, data, make_model):
    with pytest.raises(ValueError, match="an output for each of the 3 classes; got 2"):
        fit(make_model(widths=(6, 5, 2)), way(), data, epochs=1)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("loss", [nn.CrossEntropyLoss(), CrossEntropyLoss, "cross-entropy"])
def test_what_is_no_loss_is_refused(way, loss):
    with pytest.raises(TypeError, match="`loss` must be a Loss"):
        way(loss)


@pytest.mark.parametrize("heads", ["gradient", RidgeHeads])
def test_what_draws_no_heads_is_refused(heads):
    with pytest.raises(TypeError, match="`weak_heads` must be a way to draw heads"):
        FOCA(weak_heads=heads)


@pytest.mark.parametrize("way", WAYS)
def test_a_module_that_is_no_classifier_is_refused(way):
    with pytest.raises(TypeError, match=r"got Linear.*clearance\.wrap"):
        way().trainable(nn.Linear(2, 2))


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"way": "foca"}, TypeError, "`way` must be a way of training.*got 'foca'"),
        ({"way": CrossEntropyLoss()}, TypeError, r"got CrossEntropyLoss\. Write EndToEnd\(loss\)\."),
        ({"model": nn.Linear(16, 3)}, TypeError, "`model` must be a clearance Classifier; got Linear"),
        ({"optimizer": "sgd"}, TypeError, "`optimizer` must be called with parameters.*got str"),
        (
            {"optimizer": lambda _: None},
            TypeError,
            "`optimizer` must be, or make, an optimiser of torch.*got NoneType",
        ),
        ({"optimizer": torch.optim.LBFGS}, TypeError, "steps after one backward pass; got LBFGS"),
        ({"schedule": "cosine"}, TypeError, "`schedule` must be a function .* the optimiser.*got 'cosine'"),
        ({"on_step": "x"}, TypeError, "`on_step` must be a function .* the progress.*got 'x'"),
        ({"optimizer": torch.optim.SGD([torch.zeros(1)])}, TypeError, "`optimizer` must be called.*got SGD"),
        (
            {"limits": {"clip_norm": 1}},
            TypeError,
            r"`limits` must be .*such as Limits\(clip_norm=1.0.*got {'clip",
        ),
        (
            {"execution": "bf16"},
            TypeError,
            r"`execution` must be .*Execution\(autocast=torch.bfloat16.*got 'bf16'",
        ),
    ],
)
def test_fit_refuses_what_it_cannot_use(data, make_model, changes, error, message):
    given = {"model": make_model(), "way": EndToEnd(), "train": data, "epochs": 1, **changes}
    with pytest.raises(error, match=message):
        fit(**given)


def test_a_model_is_trained_where_it_is(data, make_model, monkeypatch):
    """Also where there is CUDA: what follows, as model(images), is for the device that its owner chose."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    model = make_model()
    fit(model, EndToEnd(), data, epochs=1)
    assert {parameter.device.type for parameter in model.parameters()} == {"cpu"}


@pytest.mark.parametrize("way", WAYS)
def test_a_loop_of_ones_own_may_give_the_data_as_a_pair(way, data, make_model, sgd, weights, same):
    """As everywhere else: (images, labels) are as good as an ImageSet."""
    found = []
    for given in (data, (data.images, data.labels)):
        settings, model = way(), make_model()
        training = settings.start(model, given, sgd(settings, model), settings.generators(0))
        training.step(data.images, data.labels)
        training.finish()
        found.append(weights(model))
    assert same(*found)


def test_layers_are_a_list(data):
    model = Classifier(nn.Flatten(), nn.Linear(16, 3))
    with pytest.raises(TypeError, match=r"`layers` must be a list of names.*Write \['head'\]"):
        model.outputs(data.images, layers="head")
