"""Every score against another way to compute it: torch.distributions, scikit-learn, loops over images."""

import math
from typing import Any

import pytest
import torch
from sklearn.covariance import EmpiricalCovariance
from sklearn.neighbors import NearestNeighbors
from torch import nn
from torch.distributions import MultivariateNormal

from clearance.audits import Likelihood, Subject
from clearance.audits.likelihood import NETWORK_SCORES, NormalImages, Scorer, pixel_scores, sign_noise
from clearance.data import ImageSet
from clearance.data.synthetic import GaussianClasses
from clearance.heads import GaussianMixture
from clearance.models import Classifier
from clearance.research import fixed_images

WORLD = GaussianClasses(class_count=3, shape=(1, 3, 4), separation=2.0, noise=0.05)
TRAIN, TEST = WORLD.images(30, seed=0), WORLD.images(20, seed=1)


def model(head):
    torch.manual_seed(2)
    return Classifier(
        nn.Sequential(nn.Flatten(), nn.Linear(12, 5), nn.Tanh()), head, mean=0.5, std=0.1
    ).eval()


def seen(head, neighbours=3, reference=5000):
    classifier = model(head)
    scorer = Scorer.fitted(Subject(classifier, TRAIN, TEST), reference, neighbours)
    found, logits = scorer.scores(TEST.images)
    with torch.no_grad():
        features = [classifier.features(data.images).double() for data in (TRAIN, TEST)]
    return found, logits, features


def linear():
    torch.manual_seed(3)
    return nn.Linear(5, 3)


def test_of_any_head_the_logit_its_softmax_and_its_energy():
    found, logits, _ = seen(linear())
    assert tuple(found) == tuple(name for name in NETWORK_SCORES if name not in ("density", "learned centre"))
    for row, logit in enumerate(logits.tolist()):
        assert float(found["likelihood"][row]) == max(logit)
        energy = math.log(sum(math.exp(z) for z in logit))
        assert float(found["energy"][row]) == pytest.approx(energy, rel=1e-12)
        assert float(found["max softmax"][row]) == pytest.approx(max(logit) - energy, rel=1e-9)


@pytest.mark.parametrize("covariance", ["identity", "class_diagonal", "full"])
def test_p02_of_a_mixture_the_log_densities(covariance):
    torch.manual_seed(4)
    head = GaussianMixture(5, 3, covariance, priors=(0.2, 0.5, 0.3))
    classifier = model(head)
    with torch.no_grad():
        head.fit_statistics(classifier.features(TRAIN.images), TRAIN.labels)
        found, logits, (_, rows) = seen(head)
        predicted = head.double()(rows).argmax(dim=1)
        if covariance == "full":
            factor: Any = head._factor()
            matrices = [factor @ factor.T] * 3
        else:
            variances = head.log_variance().double().exp().expand(3, 5)
            matrices = [one.diag() for one in variances]
        normals = [MultivariateNormal(m, s) for m, s in zip(head.means, matrices, strict=True)]
        each = torch.stack([normal.log_prob(rows) for normal in normals], dim=1)
    torch.testing.assert_close(
        found["likelihood"], each.gather(1, predicted[:, None])[:, 0], rtol=1e-5, atol=1e-5
    )
    mixed = (each + torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64).log()).logsumexp(dim=1)
    torch.testing.assert_close(found["density"], mixed, rtol=1e-5, atol=1e-5)
    assert logits.shape == (60, 3)


def test_class_mean_and_mahalanobis():
    found, logits, (known, rows) = seen(linear())
    means = torch.stack([known[TRAIN.labels == k].mean(dim=0) for k in range(3)])
    fitted = EmpiricalCovariance(assume_centered=True).fit((known - means[TRAIN.labels]).numpy())
    for i, row in enumerate(rows):
        own = means[logits[i].argmax()]
        assert float(found["class mean"][i]) == pytest.approx(
            -0.5 * float((row - own) @ (row - own)), rel=1e-9
        )
        nearest = min(fitted.mahalanobis((row - mean)[None].numpy())[0] for mean in means)
        assert float(found["mahalanobis"][i]) == pytest.approx(-0.5 * nearest, rel=1e-6)


@pytest.mark.parametrize("neighbours", [1, 4])
def test_neighbours_of_unit_length(neighbours):
    found, _, (known, rows) = seen(linear(), neighbours)
    unit = [each / each.norm(dim=1, keepdim=True) for each in (known, rows)]
    far, _ = NearestNeighbors(n_neighbors=neighbours).fit(unit[0].numpy()).kneighbors(unit[1].numpy())
    expected = -0.5 * torch.as_tensor(far[:, -1]).square()
    torch.testing.assert_close(found["neighbours"], expected, rtol=1e-6, atol=1e-9)


def test_few_images_may_stand_for_all_as_neighbours():
    few, all_ = seen(linear(), 1, 9)[0]["neighbours"], seen(linear(), 1)[0]["neighbours"]
    assert (few <= all_ + 1e-12).all()
    assert (few < all_ - 1e-3).any()
    assert seen(linear(), 50, 9)[0]["neighbours"].isfinite().all()  # more than there are


@pytest.mark.parametrize("name", NETWORK_SCORES)
def test_every_score_can_be_differentiated(name):
    torch.manual_seed(4)
    classifier = model(GaussianMixture(5, 3, "class_diagonal")).double()
    scorer = Scorer.fitted(Subject(classifier, TRAIN, TEST), 5000, 2, torch.randn(3, 5))
    images = TEST.images[:2].double().requires_grad_()

    def score(pixels):
        return scorer.columns(name, *scorer.read(pixels))

    assert torch.autograd.gradcheck(score, (images,), atol=1e-5)


def test_outputs_that_stand_for_no_class_are_far_from_every_mean():
    torch.manual_seed(3)
    head = nn.Linear(5, 4)
    with torch.no_grad():
        head.bias[3] = 100.0  # always predicted
    found, _, _ = seen(head)
    assert (found["class mean"] == -math.inf).all()


def test_pixel_scores_are_counted():
    images = TEST.images[:3].clone()
    images[0, 0, 0] = torch.tensor([0.0, 0.05, 0.1, 0.11])
    for epsilon in (0.1, 0.3):
        found = pixel_scores(images, epsilon)
        for i, image in enumerate(images[:, 0].tolist()):
            flat = [p for row in image for p in row]
            inside = sum(0 < p <= epsilon + 1e-6 for p in flat) / 12
            across = [abs(a - b) for row in image for a, b in zip(row[1:], row, strict=False)]
            down = [
                abs(a - b) for r, s in zip(image[1:], image, strict=False) for a, b in zip(r, s, strict=True)
            ]
            assert float(found["small pixels"][i]) == pytest.approx(-inside)
            assert float(found["pixel steps"][i]) == pytest.approx(-sum(across + down) / 17, rel=1e-5)


def test_a_black_pixel_that_fgsm_lifts_lies_in_the_interval():
    for epsilon in (0.1, 0.2, 0.3, 1 / 3):
        lifted = torch.zeros(1, 1, 1, 2) + torch.tensor(epsilon)
        assert float(pixel_scores(lifted, epsilon)["small pixels"]) == -1.0


def test_fgsm_changes_every_image_and_counts_those_that_it_broke():
    classifier = model(linear())
    scorer = Scorer.fitted(Subject(classifier, TRAIN, TEST), 5000, 3)
    changed = NormalImages(scorer, TEST, TEST).after("FGSM", 0.02, steps=1)
    images = TEST.images.clone().requires_grad_()
    torch.nn.functional.cross_entropy(classifier(images), TEST.labels).backward()
    assert images.grad is not None
    torch.testing.assert_close(changed.images, (TEST.images + 0.02 * images.grad.sign()).clamp(0, 1))
    with torch.no_grad():
        before, after = classifier(TEST.images).argmax(dim=1), classifier(changed.images).argmax(dim=1)
    assert torch.equal(changed.fooled, (before == TEST.labels) & (after != TEST.labels))
    assert torch.equal(changed.logits.argmax(dim=1), after)
    assert 0 < int(changed.fooled.sum()) < int((before == TEST.labels).sum())


def test_sign_noise_is_as_long_as_what_it_stands_beside_after_clipping():
    black = TEST.images.clone()
    black[:, :, :, :4] = 0.0  # half of the lifts are lost there
    changes = torch.zeros_like(black)
    changes[0, 0, 0, 0], changes[1], changes[2] = 0.01, 0.05, 0.4
    noise = sign_noise(black, changes, seed=0) - black
    lengths = [change.flatten(1).norm(dim=1) for change in (noise, changes)]
    torch.testing.assert_close(lengths[0], lengths[1], rtol=1e-4, atol=1e-6)
    signs = (sign_noise(black, torch.full_like(black, 0.05), seed=0) - black).sign()
    assert bool((noise.sign() * signs >= 0).all())  # the same coins
    assert torch.equal(noise[3:], torch.zeros_like(noise[3:]))
    white = sign_noise(torch.ones(1, 1, 2, 2), torch.full((1, 1, 2, 2), 9.0), seed=0)
    assert set(white.round(decimals=6).flatten().tolist()) <= {0.0, 1.0}  # no farther than black


def test_images_drawn_among_the_right_ones_are_nearly_the_same_for_two_networks():
    """One mistake more changes one image at most; a draw from each network's own right ones changes most of them."""
    right = torch.ones(len(TEST), dtype=torch.bool)
    other = right.clone()
    first = fixed_images(TEST, 12, seed=0, among=right)
    assert torch.bincount(first.labels).tolist() == [4, 4, 4]
    place = next(k for k in range(len(TEST)) if torch.equal(TEST.images[k], first.images[5]))
    other[place] = False
    second = fixed_images(TEST, 12, seed=0, among=other)
    same = [any(torch.equal(one, each) for each in second.images) for one in first.images]
    assert same == [k != 5 for k in range(12)]
    assert len(second) == 12
    assert len(fixed_images(TEST, 12, seed=0, among=torch.arange(len(TEST)) < 7)) == 7


def test_sign_noise_is_as_large_as_fgsm_and_the_same_wherever_an_image_stands():
    changes = torch.full_like(TEST.images, 0.05)
    noisy = sign_noise(TEST.images, changes, seed=0)
    torch.testing.assert_close((noisy - TEST.images).abs(), changes)
    assert torch.equal(sign_noise(TEST.images[7:9], changes[7:9], seed=0), noisy[7:9])
    assert not torch.equal(sign_noise(TEST.images, changes, seed=1), noisy)
    up = float((noisy > TEST.images).float().mean())
    assert abs(up - 0.5) < 4 * 0.5 / math.sqrt(noisy.numel())


class Breaking(nn.Module):
    """Features without a number where the first pixel is white."""

    def __init__(self, within):
        super().__init__()
        self.within = within

    def forward(self, images):
        broken = images.flatten(1)[:, :1] == 1.0
        return self.within(images).masked_fill(broken, math.nan)


def test_training_images_whose_features_are_no_numbers_are_left_out_of_what_is_fitted():
    plain = model(linear())
    classifier = Classifier(Breaking(plain.extractor), plain.head, mean=0.0, std=1.0).eval()
    images = TRAIN.images.clone()
    images[::7, 0, 0, 0] = 1.0
    train = ImageSet(images, TRAIN.labels, TRAIN.classes)
    left = train.subset((images[:, 0, 0, 0] != 1.0).nonzero().flatten())
    with pytest.warns(
        UserWarning, match=f"{len(train) - len(left)} of 90 training images have features that are NaN"
    ):
        found = Scorer.fitted(Subject(classifier, train, TEST), 5000, 3).scores(TEST.images)[0]
    expected = Scorer.fitted(Subject(classifier, left, TEST), 5000, 3).scores(TEST.images)[0]
    for name, values in expected.items():
        torch.testing.assert_close(found[name], values)
    images[train.labels == 1, 0, 0, 0] = 1.0
    with pytest.raises(ValueError, match="got NaN or infinity for every image of class 1"):
        Scorer.fitted(Subject(classifier, ImageSet(images, TRAIN.labels, TRAIN.classes), TEST), 5000, 3)


def test_at_learned_centres_the_distance_to_that_of_the_predicted_class():
    classifier, centres = model(linear()), torch.arange(15.0).view(3, 5) / 10
    scorer = Scorer.fitted(Subject(classifier, TRAIN, TEST), 5000, 3, centres)
    found, logits = scorer.scores(TEST.images)
    with torch.no_grad():
        features = classifier.features(TEST.images).double()
    for row, named in enumerate(logits.argmax(dim=1).tolist()):
        half = sum((float(x) - float(c)) ** 2 for x, c in zip(features[row], centres[named], strict=True)) / 2
        assert float(found["learned centre"][row]) == pytest.approx(-half, rel=1e-6)


def test_centres_of_another_form_are_refused():
    classifier = model(linear())
    with pytest.raises(ValueError, match=r"a row of each of 3 classes, 5 numbers wide .*; got \(3, 4\)"):
        Likelihood(epsilons=(0.1,), adaptive=(), centres=torch.zeros(3, 4))(classifier, TRAIN, TEST)
    given: Any = [[0.0]]
    with pytest.raises(TypeError, match=r"must be a tensor \(K, D\)"):
        Likelihood(centres=given)
