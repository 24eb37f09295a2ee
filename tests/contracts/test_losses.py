"""What every loss promises; the list of them is in cases.py."""

import copy
import warnings

import pytest
import torch
from torch import nn

import clearance.losses
from cases import CLASSES, FEATURE_WIDTH, INPUT_WIDTH, LOSSES, OwnLoss
from clearance import Outputs
from clearance.losses import Loss, TrainingWarning

BATCH = 7


class World(nn.Module):
    """Input, a hidden layer, features, logits; smooth, so that derivatives can be checked."""

    def __init__(self, case, dtype=torch.float64, seed=0):
        super().__init__()
        draws = torch.Generator().manual_seed(seed)
        self.first, self.second = nn.Linear(INPUT_WIDTH, 8), nn.Linear(8, FEATURE_WIDTH)
        self.head = case.head()
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=draws) / 2)
        self.to(dtype)

    def outputs(self, images, layers):
        hidden = torch.tanh(self.first(images))
        features = torch.tanh(self.second(hidden))
        known = {"input": images, "hidden": hidden}
        return Outputs(features, self.head(features), self.head, {name: known[name] for name in layers})


def images(dtype=torch.float64, seed=1):
    return torch.rand(BATCH, INPUT_WIDTH, generator=torch.Generator().manual_seed(seed)).to(dtype)


def labels():
    return torch.tensor([0, 1, 2, 3, 3, 0, 1])


@pytest.fixture(params=list(LOSSES))
def case(request):
    return LOSSES[request.param]


@pytest.fixture(params=[name for name, case in LOSSES.items() if case.make().reads_logits_only])
def logits_case(request):
    """Others are called once per head."""
    return LOSSES[request.param]


@pytest.fixture(params=[name for name, case in LOSSES.items() if not isinstance(case.make(), OwnLoss)])
def library_case(request):
    """A loss of somebody's own says itself what labels are."""
    return LOSSES[request.param]


def tensors_of(loss):
    return {**dict(loss.named_parameters()), **dict(loss.named_buffers())}


def trained(case, steps=3):
    """A loss after a few steps of its own parameters and of what follows a step."""
    loss, world = case.make(), World(case, torch.float32)
    optimizer = torch.optim.SGD([*loss.parameters(), *world.parameters()], lr=0.1)
    for step in range(steps):
        outputs = world.outputs(images(torch.float32, seed=step), loss.layers)
        optimizer.zero_grad()
        loss(outputs, labels()).total.backward()
        optimizer.step()
        with torch.no_grad():
            loss.after_step(outputs, labels())
    return loss


def total(loss, world, x, y):
    return loss(world.outputs(x, loss.layers), y).total


def test_every_public_loss_is_in_the_list():
    names = [getattr(clearance.losses, name) for name in clearance.losses.__all__]
    public = {found for found in names if isinstance(found, type) and issubclass(found, Loss)}
    listed = {type(case.make()) for case in LOSSES.values()}
    assert public - {Loss} == listed - {OwnLoss}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_terms_are_named_0_dim_and_at_least_float32(case, dtype):
    loss = case.make()
    terms = loss(World(case, dtype).outputs(images(dtype), loss.layers), labels())
    assert tuple(terms.terms) == case.terms
    wanted = torch.promote_types(dtype, torch.float32)
    for term in (*terms.terms.values(), terms.total):
        assert term.shape == ()
        assert term.dtype == wanted
        assert term.requires_grad


def test_total_is_the_sum_of_terms(case):
    loss = case.make()
    terms = loss(World(case).outputs(images(), loss.layers), labels())
    assert terms.total.item() == pytest.approx(sum(term.item() for term in terms.terms.values()), rel=1e-12)


@pytest.mark.parametrize("scale", [0.0, 1e-10, 1.0, 1e3, 1e10])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_loss_and_gradients_are_finite_at_every_logit_scale(case, scale, dtype):
    loss, world = case.make(), World(case, dtype)
    with torch.no_grad():
        for parameter in world.head.parameters():
            parameter.mul_(scale)
    leaf = images(dtype).requires_grad_()
    terms = loss(world.outputs(leaf, loss.layers), labels())
    assert all(term.isfinite() for term in terms.terms.values())
    terms.total.backward()
    for tensor in (leaf, *world.parameters(), *loss.parameters()):
        assert tensor.grad.isfinite().all()


def test_all_samples_alike_give_a_finite_gradient(case):
    """Where features coincide, roots and quotients of distances are most fragile."""
    loss, world = case.make(), World(case)
    leaf = images()[:1].repeat(BATCH, 1).requires_grad_()
    total(loss, world, leaf, labels()).backward()
    assert leaf.grad.isfinite().all()


def test_the_order_of_samples_does_not_matter(case):
    loss, world = case.make(), World(case)
    order = torch.tensor([3, 0, 6, 2, 5, 1, 4])
    for found, expected in zip(
        loss(world.outputs(images()[order], loss.layers), labels()[order]).terms.values(),
        loss(world.outputs(images(), loss.layers), labels()).terms.values(),
        strict=True,
    ):
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=0.0)


def test_loss_is_a_mean_over_samples(case):
    """Every sample twice is the same loss (and the same gradient of the model)."""
    if case.compares_samples:
        pytest.skip("a mean over pairs or triplets, which its own tests hold")
    loss, world = case.make(), World(case)
    once = total(loss, world, images(), labels())
    twice = total(loss, world, images().repeat(2, 1), labels().repeat(2))
    torch.testing.assert_close(twice, once, rtol=1e-12, atol=0.0)


def test_the_names_of_classes_do_not_matter(case):
    loss, world = case.make(), World(case)
    expected = total(loss, world, images(), labels())
    new_name = torch.tensor([2, 0, 3, 1])
    tensors = [parameter for parameter in world.head.parameters() if len(parameter) == CLASSES]
    tensors += [tensors_of(loss)[name] for name in case.parameters_per_class]
    with torch.no_grad():
        for tensor in tensors:
            tensor[new_name] = tensor.clone()
    found = total(loss, world, images(), new_name[labels()])
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=0.0)


def test_labels_matter(case):
    """The two tests before would pass for a constant."""
    loss, world = case.make(), World(case)
    right, wrong = (total(loss, world, images(), y) for y in (labels(), (labels() + 1) % CLASSES))
    assert abs((right - wrong).item()) > 1e-3


def test_gradient_equals_finite_differences(case):
    loss, world = case.make().double(), World(case)
    leaf = images().requires_grad_()
    inputs = (leaf, *loss.parameters(), *world.head.parameters())
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".* 50 batches", TrainingWarning)  # many batches, no step
        assert torch.autograd.gradcheck(lambda x, *_: total(loss, world, x, labels()), inputs)


def test_gradient_reaches_parameters_and_leaves_buffers_and_labels_alone(case):
    loss, world = case.make(), World(case)
    buffers = {name: value.clone() for name, value in loss.named_buffers()}
    total(loss, world, images(), labels()).backward()
    for parameter in (*loss.parameters(), *world.parameters()):
        assert parameter.grad is not None
        assert parameter.grad.abs().sum() > 0
    assert all(torch.equal(value, buffers[name]) for name, value in loss.named_buffers())


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_nothing_changes_dtype_whatever_the_logits_are(case, dtype):
    loss, world = case.make(), World(case, dtype)
    before = {name: value.dtype for name, value in tensors_of(loss).items()}
    outputs = world.outputs(images(dtype), loss.layers)
    loss(outputs, labels()).total.backward()
    with torch.no_grad():
        loss.after_step(outputs, labels())
    assert {name: value.dtype for name, value in tensors_of(loss).items()} == before


def test_state_survives_saving_and_loading(case):
    used, fresh = trained(case), case.make()
    fresh.load_state_dict(copy.deepcopy(used.state_dict()))
    world = World(case, torch.float32)
    x = images(torch.float32)
    assert torch.equal(total(fresh, world, x, labels()), total(used, world, x, labels()))
    if used.state_dict():
        assert not torch.equal(total(case.make(), world, x, labels()), total(used, world, x, labels()))


def test_all_that_a_step_changes_is_in_the_checkpoint(case):
    """Parameters, buffers and counters; a plain attribute would be lost on resuming."""
    fresh, used = case.make(), trained(case)

    def plain(loss):
        return {name: repr(value) for name, value in vars(loss).items() if not name.startswith("_")}

    assert plain(used) == plain(fresh)


def test_logits_of_several_heads_give_the_mean_over_heads(logits_case):
    loss = logits_case.make()
    features = images() @ torch.ones(INPUT_WIDTH, FEATURE_WIDTH, dtype=torch.float64)
    logits = torch.randn(3, BATCH, CLASSES, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    together = loss(Outputs(features, logits, nn.Identity()), labels())
    alone = [loss(Outputs(features, each, nn.Identity()), labels()) for each in logits]
    for name, term in together.terms.items():
        mean = torch.stack([each.terms[name] for each in alone]).mean()
        torch.testing.assert_close(term, mean, rtol=1e-12, atol=0.0)
        assert term.shape == ()


def test_a_loss_that_says_so_reads_logits_only(logits_case):
    """Other features, another head and no activations change nothing."""
    loss = logits_case.make()
    assert tuple(loss.layers) == ()
    outputs = World(logits_case).outputs(images(), ())
    bare = Outputs(torch.full_like(outputs.features, torch.nan), outputs.logits, nn.Identity())
    assert torch.equal(loss(bare, labels()).total, loss(outputs, labels()).total)


WRONG_LABELS = {
    "a class too many": (
        torch.tensor([0, 1, 2, 3, 4, 0, 1]),
        ValueError,
        "0 .. 3, because there are 4 classes; got 0 .. 4",
    ),
    "below 0": (torch.tensor([0, 1, -100, 3, 3, 0, 1]), ValueError, "got -100 .. 3"),
    "too few": (torch.tensor([0, 1, 2]), ValueError, r"shape \(7,\).*got \(3,\)"),
    "one-hot": (torch.eye(CLASSES)[labels()].long(), ValueError, r"argmax\(1\)"),
    "numbers": (labels().double(), TypeError, r"labels\.long\(\)"),
    "bytes": (labels().to(torch.uint8), TypeError, "int64"),
    "array": (labels().numpy(), TypeError, r"Write torch\.as_tensor\(labels\)"),
    "list": (labels().tolist(), TypeError, r"Write torch\.as_tensor\(labels\)"),
}


@pytest.mark.parametrize("wrong", WRONG_LABELS)
def test_labels_that_are_no_classes_are_refused(library_case, wrong):
    loss, (found, error, message) = library_case.make(), WRONG_LABELS[wrong]
    with pytest.raises(error, match=message):
        loss(World(library_case).outputs(images(), loss.layers), found)


@pytest.mark.parametrize("size", [2, 16])
def test_labels_without_numbers_are_not_checked(size):
    """Where a step is only traced, nothing can be read from its tensors."""
    features, logits = torch.zeros(size, 5, device="meta"), torch.zeros(size, 3, device="meta")
    logits.requires_grad_()
    labels = torch.zeros(size, dtype=torch.int64, device="meta")
    loss = clearance.losses.CrossEntropyLoss()(Outputs(features, logits, nn.Identity()), labels)
    assert loss.total.device.type == "meta"


def test_a_batch_of_none_is_refused(library_case):
    loss, world = library_case.make(), World(library_case)
    with pytest.raises(ValueError, match="at least 1 sample"):
        loss(world.outputs(images()[:0], loss.layers), labels()[:0])


def test_repr_names_the_loss_and_its_settings(case):
    loss = case.make()
    assert repr(loss).startswith(f"{type(loss).__name__}(")
    settings = {k: v for k, v in vars(loss).items() if not k.startswith("_") and k != "training"}
    for name, value in settings.items():
        assert f"{name}={value!r}" in repr(loss)
