"""Adversarial training: what is attacked, in which mode, and that a resumed run is the same run."""

import copy
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from clearance.attacks import FGSM, PGD, transferred
from clearance.data import gaussian_images
from clearance.training import EndToEnd, fit


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
        way = EndToEnd(adversarial=OneStep(noise=0.2), head_noise=0.01)
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
    with pytest.raises(TypeError, match=r"`adversarial` must be an attack.*got str"):
        EndToEnd(adversarial="fgsm")  # type: ignore[arg-type]


def test_training_on_fgsm_images_withstands_fgsm(make_model):
    data = gaussian_images(class_count=3, per_class=40, shape=(1, 4, 4))
    attack = FGSM(epsilon=0.12)
    held = {}
    for name, adversarial in (("plain", None), ("adversarial", attack)):
        model = make_model(nn.ReLU())
        fit(model, EndToEnd(adversarial=adversarial), data, epochs=30, batch_size=20)
        held[name] = 1 - float(attack(model, data.images, data.labels).success.double().mean())
    assert held["adversarial"] > held["plain"]
