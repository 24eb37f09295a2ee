"""EndToEnd against descent written by hand, and adversarial training."""

import copy
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call

from clearance import LossTerms, load_dataset
from clearance.attacks import FGSM, PGD, as_attack, transferred
from clearance.data import gaussian_images
from clearance.losses import CrossEntropyLoss, Loss, TrainingWarning
from clearance.models import Classifier
from clearance.research import generator
from clearance.training import EndToEnd, fit
from clearance.vocabulary import Outcome


class PullToPoint(Loss):
    """Cross-entropy plus the distance of features to a learned point; notes how it is called."""

    def __init__(self, width=6):
        super().__init__()
        self.point = nn.Parameter(torch.ones(width))
        self.notes = []

    def forward(self, outputs, labels):
        pull = 0.1 * (outputs.features - self.point).square().sum(dim=1).mean()
        return LossTerms({"cross_entropy": F.cross_entropy(outputs.logits, labels), "pull": pull})

    def after_step(self, outputs, labels):
        self.notes.append((torch.is_grad_enabled(), self.point.detach().clone(), len(labels)))


def plain_loss(model, images, labels):
    """The loss of Eq. 1, from the two parts of the model alone."""
    logits = model.head(model.extractor((images - 0.5) / 0.25))
    return F.cross_entropy(logits, labels, reduction="none").mean()


def test_steps_are_those_of_sgd_with_momentum_by_hand(data, make_model, sgd, weights, same):
    model = make_model()
    twin = copy.deepcopy(model)
    way = EndToEnd()
    training = way.start(model, data, sgd(way, model, 0.1, 0.9), way.generators(0))
    parameters = list(twin.parameters())
    velocity = [torch.zeros_like(parameter) for parameter in parameters]
    for rows in (torch.arange(10), torch.arange(7, 20), torch.arange(3)):
        images, labels = data.batch(rows)
        expected = plain_loss(twin, images, labels)
        gradients = torch.autograd.grad(expected, parameters)
        with torch.no_grad():
            for parameter, speed, gradient in zip(parameters, velocity, gradients, strict=True):
                speed.mul_(0.9).add_(gradient)
                parameter.add_(speed, alpha=-0.1)
        loss = training.step(images, labels)
        assert torch.equal(loss.total.detach(), expected.detach())
        assert same(weights(model), weights(twin))


def test_the_gradient_is_taken_at_the_noisy_head_and_moves_the_clean_one(data, make_model, sgd):
    model = make_model().double()
    twin = copy.deepcopy(model)
    way = EndToEnd(head_noise=0.3)
    training = way.start(model, data, sgd(way, model), way.generators(5))
    stream = generator(5, "head_noise")
    names = [name for name, _ in twin.named_parameters()]
    for _ in range(2):  # the noise is fresh in every step
        clean = dict(twin.named_parameters())
        noisy = {name: value.detach().clone().requires_grad_() for name, value in clean.items()}
        with torch.no_grad():
            for name in names:
                if name.startswith("head."):
                    noisy[name] += 0.3 * torch.randn(noisy[name].shape, generator=stream).double()
        logits = functional_call(twin, noisy, (data.images,))
        gradients = torch.autograd.grad(F.cross_entropy(logits, data.labels), [noisy[n] for n in names])
        with torch.no_grad():
            for name, gradient in zip(names, gradients, strict=True):
                clean[name] -= 0.1 * gradient
        training.step(data.images, data.labels)
        for name, value in model.named_parameters():
            torch.testing.assert_close(value, clean[name], rtol=1e-12, atol=1e-14)


def test_head_noise_has_the_stated_deviation_on_every_parameter(data, make_model, sgd):
    model = make_model(widths=(6, 400, 3))
    clean = {name: value.detach().clone() for name, value in model.head.named_parameters()}
    seen = []
    model.head.register_forward_pre_hook(
        lambda head, _: seen.append({name: value.detach().clone() for name, value in head.named_parameters()})
    )
    way = EndToEnd(head_noise=0.2)
    training = way.start(model, data, sgd(way, model, lr=0.0), way.generators(0))
    for _ in range(20):
        training.step(data.images, data.labels)
    for name, value in clean.items():
        noise = torch.stack([head[name] - value for head in seen])
        # five standard errors of a standard deviation and of a mean
        assert abs(float(noise.std()) - 0.2) < 5 * 0.2 / (2 * noise.numel()) ** 0.5
        assert abs(float(noise.mean())) < 5 * 0.2 / noise.numel() ** 0.5
    one, two = (torch.cat([(h[n] - clean[n]).flatten() for n in clean]) for h in seen[:2])
    assert abs(float(torch.corrcoef(torch.stack([one, two]))[0, 1])) < 5 / len(one) ** 0.5


def test_without_noise_the_stream_is_untouched_and_with_noise_only_that_one(data, make_model, sgd):
    for sigma in (0.0, 0.1):
        model, way = make_model(), EndToEnd(head_noise=sigma)
        streams = way.generators(0)
        before, globally = streams["head_noise"].get_state(), torch.get_rng_state()
        way.start(model, data, sgd(way, model), streams).step(data.images, data.labels)
        assert torch.equal(streams["head_noise"].get_state(), before) is (sigma == 0)
        assert torch.equal(torch.get_rng_state(), globally)


def test_noise_is_taken_off_again_even_where_the_loss_fails(data, make_model, sgd, weights, same):
    class Failing(CrossEntropyLoss):
        def forward(self, outputs, labels):
            raise RuntimeError("no loss today")

    for loss, lr in ((Failing(), 0.1), (CrossEntropyLoss(), 0.0)):
        model, way = make_model(), EndToEnd(loss, head_noise=0.5)
        before = weights(model)
        training = way.start(model, data, sgd(way, model, lr), way.generators(0))
        if isinstance(loss, Failing):
            with pytest.raises(RuntimeError, match="no loss today"):
                training.step(data.images, data.labels)
        else:
            training.step(data.images, data.labels)
        assert same(weights(model), before)


def test_the_losses_parameters_are_trained_too(data, make_model, sgd):
    model, loss = make_model(), PullToPoint()
    way = EndToEnd(loss)
    declared = list(way.trainable(model))
    assert {id(p) for p in declared} == {id(p) for p in (*model.parameters(), loss.point)}
    assert len(declared) == len({id(p) for p in declared})
    features = model.features(data.images).detach()
    way.start(model, data, sgd(way, model), way.generators(0)).step(data.images, data.labels)
    expected = 1 + 0.1 * 0.1 * 2 * (features.mean(dim=0) - 1)
    torch.testing.assert_close(loss.point.detach(), expected)


def test_after_step_is_called_once_without_gradient_when_the_optimiser_has_moved(data, make_model, sgd):
    model, loss = make_model(), PullToPoint()
    way = EndToEnd(loss)
    training = way.start(model, data, sgd(way, model), way.generators(0))
    for count in (9, 4):
        before = loss.point.detach().clone()
        training.step(*data.batch(torch.arange(count)))
        enabled, point, size = loss.notes[-1]
        assert not enabled
        assert size == count
        assert torch.equal(point, loss.point)
        assert not torch.equal(point, before)
    assert len(loss.notes) == 2


def test_a_step_moves_the_declared_parameters_and_nothing_else(data, make_model, sgd, weights):
    model = make_model(nn.BatchNorm1d(6))
    images = data.images.clone().requires_grad_()
    before = weights(model)
    way = EndToEnd()
    way.start(model, data, sgd(way, model), way.generators(0)).step(images, data.labels)
    declared = {id(p) for p in way.trainable(model)}
    named = dict(model.named_parameters())
    moved = {name for name, value in weights(model).items() if not torch.equal(value, before[name])}
    statistics = {f"extractor.2.{name}" for name in ("running_mean", "running_var", "num_batches_tracked")}
    # a bias before batch normalisation has no gradient but rounding
    assert moved - {"extractor.1.bias"} == set(named) - {"extractor.1.bias"} | statistics
    assert all(id(named[name]) in declared for name in moved - statistics)


@pytest.mark.parametrize("sigma", [-0.1, float("nan"), float("inf")])
def test_noise_that_is_no_deviation_is_refused(sigma):
    with pytest.raises(ValueError, match="`head_noise` must be a finite number of at least 0; got"):
        EndToEnd(head_noise=sigma)


# Adversarial training: what is attacked, in which mode, and that a resumed run is the same run.


@dataclass(frozen=True)
class OneStep:
    """A step along the sign of the gradient, from a random start where there is noise; notes its calls."""

    epsilon: float = 0.1
    noise: float = 0.0
    seed: int = 0
    calls: list = field(default_factory=list, compare=False, repr=False)

    def __call__(self, model, images, labels):
        self.calls.append((self.seed, images, labels, [m.training for m in model.modules()]))
        drawn = torch.rand(images.shape, generator=torch.Generator().manual_seed(self.seed)) - 0.5
        start = (images + self.noise * drawn).clamp(0, 1).requires_grad_()
        loss = F.cross_entropy(model(start), labels, reduction="sum")
        loss.backward()  # careless: parameters get gradients, too
        return SimpleNamespace(images=(start + self.epsilon * start.grad.sign()).clamp(0, 1))


def start(way, model, data, lr=0.1):
    optimizer = torch.optim.SGD(way.trainable(model), lr=lr)
    return way.start(model, data, optimizer, way.generators(0))


@pytest.mark.parametrize(("share", "count"), [(1.0, 24), (0.5, 12), (0.25, 6), (0.001, 1)])
def test_a_step_is_descent_on_the_batch_with_its_first_part_attacked(data, make_model, share, count):
    model = make_model(nn.ReLU())
    twin = copy.deepcopy(model)
    attack = OneStep()
    start(EndToEnd(adversarial=attack, adversarial_share=share), model, data).step(data.images, data.labels)
    moved = attack(twin, data.images[:count], data.labels[:count]).images
    twin.zero_grad()
    F.cross_entropy(twin(torch.cat([moved, data.images[count:]])), data.labels).backward()
    for value, other in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(value, other - 0.1 * other.grad)
    assert torch.equal(attack.calls[0][1], data.images[:count])
    assert torch.equal(attack.calls[0][2], data.labels[:count])


def test_the_model_is_attacked_in_evaluation_mode_and_gets_every_mode_back(data, make_model):
    model = make_model(nn.BatchNorm1d(6), nn.Dropout(0.5))
    frozen = model.extractor[2]
    model.train()
    frozen.eval()
    modes = [m.training for m in model.modules()]
    attack = OneStep()
    training = start(EndToEnd(adversarial=attack, adversarial_share=1.0), model, data, lr=0.0)
    training.step(data.images, data.labels)
    assert attack.calls[0][3] == [False] * len(modes)
    assert [m.training for m in model.modules()] == modes
    assert int(frozen.num_batches_tracked) == 0
    frozen.train()
    training.step(data.images, data.labels)
    assert int(frozen.num_batches_tracked) == 1  # the step's own pass; the attack's leaves no trace


def test_modes_come_back_where_the_attack_fails(data, make_model):
    def failing(model, images, labels):
        raise RuntimeError("no attack today")

    model = make_model().train()
    with pytest.raises(RuntimeError, match="no attack today"):
        start(EndToEnd(adversarial=failing), model, data).step(data.images, data.labels)
    assert all(m.training for m in model.modules())


def test_images_that_are_wrong_already_are_attacked_too(data, make_model):
    """By attacks of Clearance; a call alone would leave them as they are."""
    model = make_model().eval()
    wrong = (model(data.images).argmax(dim=1) + 1) % data.class_count
    attack = FGSM(0.1)
    assert torch.equal(attack(model, data.images, wrong).images, data.images)
    seen = []
    model.extractor.register_forward_pre_hook(lambda module, given: seen.append(given[0].detach()))
    way = EndToEnd(adversarial=attack, adversarial_share=1.0)
    start(way, model, data, lr=0.0).step(data.images, wrong)
    trained_on = seen[-1] * model.std + model.mean
    changed = ((trained_on - data.images).abs() > 0.01).flatten(1).any(dim=1)
    assert bool(changed.all())


def test_a_seed_of_the_attack_is_fresh_in_every_step_and_the_same_in_every_run(data, make_model):
    seeds = []
    for _ in range(2):
        attack = OneStep(noise=0.1)
        training = start(EndToEnd(adversarial=attack), make_model(), data)
        for _ in range(3):
            training.step(data.images, data.labels)
        seeds.append([call[0] for call in attack.calls])
    assert seeds[0] == seeds[1]
    assert len(set(seeds[0])) == 3
    assert "adversarial" not in EndToEnd().generators(0)


def test_an_attack_made_on_another_network_gets_fresh_starts_too(data, make_model):
    seen = []
    model, source = make_model().eval(), make_model(seed=4).eval()
    model.extractor.register_forward_pre_hook(lambda module, given: seen.append(given[0].detach()))
    attack = transferred(source, PGD(0.1, steps=3, restarts=2))
    way = EndToEnd(adversarial=attack, adversarial_share=1.0)
    training = start(way, model, data, lr=0.0)
    trained_on = []
    for _ in range(2):
        training.step(data.images, data.labels)
        trained_on.append(seen[-1])
    assert not torch.equal(*trained_on)


class Killed(Exception):  # noqa: N818 - stands for the end of the process
    pass


def test_a_run_that_was_killed_ends_with_the_same_bits(make_model, weights, same, tmp_path):
    data = gaussian_images(class_count=3, per_class=9, shape=(1, 4, 4))

    def train(folder, end=None):
        def on_step(progress):
            if progress.step == end:
                raise Killed

        model = make_model(nn.BatchNorm1d(6), nn.Dropout(0.3))
        way = EndToEnd(adversarial=OneStep(noise=0.2), adversarial_rise=9, head_noise=0.01)
        fit(
            model,
            way,
            data,
            epochs=2,
            batch_size=5,
            seed=1,
            run_dir=folder,
            checkpoint_every=2,
            on_step=on_step,
        )
        return weights(model)

    straight = train(tmp_path / "straight")
    for end in (3, 8):
        with pytest.raises(Killed):
            train(tmp_path / f"{end}", end)
        assert same(train(tmp_path / f"{end}"), straight)


def test_the_radius_rises_in_equal_parts_to_the_attacks_own(data, make_model):
    radii = []

    @dataclass(frozen=True)
    class Noted(OneStep):
        def __call__(self, model, images, labels):
            radii.append(self.epsilon)
            return super().__call__(model, images, labels)

    training = start(EndToEnd(adversarial=Noted(0.4), adversarial_rise=4), make_model(), data)
    for _ in range(6):
        training.step(data.images, data.labels)
    assert radii == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.4, 0.4])


def test_the_radius_of_an_attack_made_on_another_network_rises_too(data, make_model):
    seen = []
    model, source = make_model(), make_model(seed=4).eval()
    model.extractor.register_forward_pre_hook(lambda module, given: seen.append(given[0].detach()))
    way = EndToEnd(adversarial=transferred(source, FGSM(0.2)), adversarial_share=1.0, adversarial_rise=2)
    training = start(way, model, data, lr=0.0)
    for expected in (0.1, 0.2):
        training.step(data.images, data.labels)
        moved = (seen[-1] * model.std + model.mean - data.images).abs().amax()
        torch.testing.assert_close(moved, torch.tensor(expected))


def test_another_attack_is_another_run(data, make_model, tmp_path):
    fit(make_model(), EndToEnd(adversarial=OneStep()), data, epochs=1, run_dir=tmp_path / "run")
    with pytest.raises(ValueError, match="epsilon"):
        fit(make_model(), EndToEnd(adversarial=OneStep(0.2)), data, epochs=1, run_dir=tmp_path / "run")


def returning(change):
    return lambda model, images, labels: SimpleNamespace(images=change(images))


@pytest.mark.parametrize(
    ("attack", "message"),
    [
        (returning(lambda images: images + 0.8), r"must return images in \[0, 1\]; got values from .* to 1"),
        (returning(lambda images: images * torch.nan), r"must return images in \[0, 1\]"),
        (
            returning(lambda images: images[1:]),
            r"must return images of shape \(12, 1, 4, 4\); got \(11, 1, 4, 4\)",
        ),
    ],
)
def test_what_is_no_image_is_refused(data, make_model, attack, message):
    with pytest.raises(ValueError, match=message):
        start(EndToEnd(adversarial=attack), make_model(), data).step(data.images, data.labels)


def test_a_callable_may_return_the_images_themselves(data, make_model):
    plain, wrapped = (make_model() for _ in range(2))
    for model, attack in (
        (plain, lambda model, images, labels: 1 - images),
        (wrapped, returning(lambda x: 1 - x)),
    ):
        start(EndToEnd(adversarial=attack), model, data).step(data.images, data.labels)
    for one, other in zip(plain.parameters(), wrapped.parameters(), strict=True):
        assert torch.equal(one, other)


def test_what_returns_no_images_is_refused(data, make_model):
    attack = EndToEnd(adversarial=lambda model, images, labels: None)
    with pytest.raises(TypeError, match=r"the attack must return images, .*; got NoneType"):
        start(attack, make_model(), data).step(data.images, data.labels)


def test_wrong_settings_are_refused():
    for share in (0.0, 1.5):
        with pytest.raises(ValueError, match=r"`adversarial_share` must lie in \(0, 1\]"):
            EndToEnd(adversarial=OneStep(), adversarial_share=share)
    with pytest.raises(ValueError, match="`adversarial_rise` must be a whole number of at least 0; got -1"):
        EndToEnd(adversarial=OneStep(), adversarial_rise=-1)
    for attack in (None, lambda model, images, labels: images):
        with pytest.raises(
            ValueError, match="`adversarial_rise` must be 0 without an attack that is a dataclass"
        ):
            EndToEnd(adversarial=attack, adversarial_rise=10)
    with pytest.raises(ValueError, match=r"`adversarial_rise` must be 0 with `as_attack`.*got 5"):
        EndToEnd(adversarial=as_attack(lambda model, images, labels: images, 0.1), adversarial_rise=5)
    with pytest.raises(TypeError, match=r"`adversarial` must be an attack.*got str"):
        EndToEnd(adversarial="fgsm")  # type: ignore[arg-type]


@pytest.mark.filterwarnings("ignore::clearance.losses.TrainingWarning")
def test_training_that_diverges_under_a_functions_images_says_so(make_model, data):
    def along(model, images, labels):
        leaf = images.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(F.cross_entropy(model(leaf), labels), leaf)
        return (images + 0.1 * gradient / gradient.norm()).clamp(0, 1)

    optimizer = partial(torch.optim.SGD, lr=1e30)
    result = fit(make_model(), EndToEnd(adversarial=along), data, steps=5, batch_size=10, optimizer=optimizer)
    assert result.status.outcome is Outcome.DIVERGED


def test_training_on_fgsm_images_withstands_fgsm(make_model):
    data = gaussian_images(class_count=3, per_class=40, shape=(1, 4, 4))
    attack = FGSM(epsilon=0.12)
    held = {}
    for name, adversarial in (("plain", None), ("adversarial", attack)):
        model = make_model(nn.ReLU())
        fit(model, EndToEnd(adversarial=adversarial), data, epochs=30, batch_size=20)
        held[name] = 1 - float(attack(model, data.images, data.labels).success.double().mean())
    assert held["adversarial"] > held["plain"]


def test_steps_inside_one_autocast_block_see_the_weights_of_their_own_step(data, make_model):
    training = start(EndToEnd(), make_model(), data, lr=0.5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        losses = [training.step(data.images, data.labels).total.item() for _ in range(6)]
    assert losses[-1] < losses[0]


def test_what_fails_is_said_of_every_training_with_the_same_loss():
    data, way = load_dataset("digits").subset(torch.arange(64)), EndToEnd()
    for _ in range(2):
        nn.init.normal_((head := nn.Linear(64, 10)).weight, std=1e-4)
        model = Classifier(nn.Flatten(), head)
        training = way.start(model, data, torch.optim.SGD(model.parameters(), lr=1e-9))
        for _ in range(19):
            training.step(data.images, data.labels)
        with pytest.warns(TrainingWarning, match="answers all images alike"):
            training.step(data.images, data.labels)
