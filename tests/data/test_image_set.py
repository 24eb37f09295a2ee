"""ImageSet: what it gives, that draws are exact, fair and repeatable, and what is refused."""

import pickle
from fractions import Fraction

import pytest
import torch
from scipy.stats import chi2
from torch.utils.data import DataLoader

from clearance.data import Augmentation, ImageSet, gaussian_images
from clearance.data.intake import open_images
from clearance.data.stratified import draw_quota, stratified_quota
from clearance.data.subsets import draw_classes, split_classes
from clearance.data.synthetic import GaussianClasses
from data.small_images import GOOD, LABELS


def marked(sizes):
    """A set whose image i is filled with the value i / 1000, so that an image tells its index."""
    labels = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    labels = labels[torch.randperm(len(labels), generator=torch.Generator().manual_seed(1))]
    images = (torch.arange(len(labels)) / 1000).view(-1, 1, 1, 1).expand(-1, 1, 2, 2).contiguous()
    return ImageSet(images, labels, tuple(f"class {k}" for k in range(len(sizes))))


def marks(data):
    return (data.images[:, 0, 0, 0] * 1000).round().long().tolist()


def test_items_and_length():
    data = marked([3, 4])
    image, label = data[2]
    assert len(data) == 7
    assert torch.equal(image, torch.full((1, 2, 2), 0.002))
    assert label == int(data.labels[2])
    assert isinstance(label, int)
    assert len(list(data)) == 7  # iteration ends by IndexError


def test_a_data_loader_and_pickle_take_it():
    data = gaussian_images(per_class=4)
    batches = list(DataLoader(data, batch_size=5))
    assert torch.equal(torch.cat([images for images, _ in batches]), data.images)
    assert torch.equal(torch.cat([labels for _, labels in batches]), data.labels)
    assert pickle.loads(pickle.dumps(data)).digest() == data.digest()


def test_a_set_is_frozen():
    with pytest.raises(AttributeError):
        gaussian_images().name = "other"  # type: ignore[misc]


def test_batch_augments_only_with_a_generator():
    data = gaussian_images().augmented(Augmentation(cutout=3))
    indices = torch.tensor([4, 4, 0])
    plain, labels = data.batch(indices)
    assert torch.equal(plain, data.images[indices])
    assert torch.equal(labels, data.labels[indices])
    changed, _ = data.batch(indices, torch.Generator().manual_seed(0))
    assert torch.equal(changed, Augmentation(cutout=3)(plain, torch.Generator().manual_seed(0)))
    assert not torch.equal(changed, plain)
    assert torch.equal(data[4][0], plain[0])
    bare, _ = data.augmented(None).batch(indices, torch.Generator().manual_seed(0))
    assert torch.equal(bare, plain)


def test_sets_of_the_same_images_share_them():
    data = gaussian_images()
    for other in (data.with_label_noise(0.5, 0), data.augmented(Augmentation()), data.to("cpu")):
        assert other.images.data_ptr() == data.images.data_ptr()


def test_methods_leave_the_set_as_it_was():
    data = gaussian_images()
    before = data.digest()
    data.with_label_noise(0.9, 0)
    data.split(0.5, 0)
    data.augmented(Augmentation(flip=True)).batch(torch.arange(9), torch.Generator())
    assert data.digest() == before


def test_subset_keeps_order_classes_and_augmentation():
    data = marked([3, 4]).augmented(Augmentation(flip=True))
    some = data.subset(torch.tensor([5, 1, 1]), name="some")
    assert marks(some) == [5, 1, 1]
    assert torch.equal(some.labels, data.labels[[5, 1, 1]])
    assert (some.classes, some.name, some.augmentation) == (data.classes, "some", data.augmentation)
    assert data.subset(torch.tensor([0])).name == data.name


def test_a_subset_may_lack_a_class():
    data = marked([3, 4])
    only = data.subset((data.labels == 1).nonzero().flatten())
    assert set(only.labels.tolist()) == {1}
    assert only.class_count == 2
    assert only.fraction(0.5, seed=0).labels.tolist() == [1, 1]


@pytest.mark.parametrize("fraction", [0.1, 0.25, 1 / 3, 0.5, 0.9])
def test_split_is_exact_stratified_and_a_partition(fraction):
    data = marked([30, 50, 21])
    rest, part = data.split(fraction, seed=3)
    assert len(part) == round(fraction * len(data))
    assert sorted(marks(rest) + marks(part)) == list(range(len(data)))
    shares = torch.bincount(part.labels) - fraction * torch.bincount(data.labels)
    assert shares.abs().max() < 1
    for side in (rest, part):
        assert torch.equal(side.labels, data.labels[marks(side)])
        assert marks(side) == sorted(marks(side))


def test_fraction_is_the_part_of_split():
    data = marked([30, 50, 21])
    assert marks(data.fraction(0.3, seed=5)) == marks(data.split(0.3, seed=5)[1])
    assert data.fraction(1.0, seed=5).digest() == data.digest()


def test_per_class_is_exact():
    few = marked([9, 5, 7]).per_class(5, seed=2)
    assert torch.bincount(few.labels).tolist() == [5, 5, 5]
    assert len(set(marks(few))) == 15


DRAWS = {
    "split": lambda data, seed: data.split(0.5, seed)[1],
    "fraction": lambda data, seed: data.fraction(0.5, seed),
    "per_class": lambda data, seed: data.per_class(10, seed),
    "with_label_noise": lambda data, seed: data.with_label_noise(0.3, seed),
}


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS.keys())
def test_draws_depend_on_the_seed_and_nothing_else(draw):
    data = marked([30, 50, 21])
    torch.manual_seed(0)
    first = draw(data, 7).digest()
    state = torch.get_rng_state()
    torch.rand(3)
    assert draw(data, 7).digest() == first
    assert draw(data, 8).digest() != first
    torch.manual_seed(0)
    assert torch.equal(torch.get_rng_state(), state)  # the global generator was not drawn from


def test_draws_are_uniform_over_images_and_pairs():
    data, runs = marked([4, 4]), 600
    drawn = torch.zeros(runs, len(data))
    for seed in range(runs):
        drawn[seed, marks(data.per_class(2, seed))] = 1
    together = drawn.T @ drawn / runs
    same = data.labels[:, None] == data.labels
    expected = torch.where(same, 1 / 6, 1 / 4).fill_diagonal_(1 / 2)  # 2 of 4: 1/2 alone, 1/6 as a pair
    standard_error = (expected * (1 - expected) / runs).sqrt()
    assert ((together - expected).abs() < 4.5 * standard_error).all()


def test_label_noise_is_exact_and_keeps_images():
    data = marked([30, 50, 21])
    for rate in (0.0, 0.1, 0.5, 1.0):
        noisy = data.with_label_noise(rate, seed=0)
        assert int((noisy.labels != data.labels).sum()) == round(rate * 101)
        assert marks(noisy) == marks(data)


def test_label_noise_is_uniform_over_the_other_classes():
    labels = torch.arange(3).repeat_interleave(4000)
    data = ImageSet(torch.zeros(12000, 1, 1, 1), labels, ("a", "b", "c", "d", "e")[:3])
    noisy = data.with_label_noise(0.5, seed=0).labels
    confusion = torch.zeros(3, 3, dtype=torch.float64)
    confusion.index_put_((labels, noisy), torch.ones(12000, dtype=torch.float64), accumulate=True)
    wrong = confusion - confusion.diag().diag()
    expected = 6000 / 6
    statistic = ((wrong - expected).square() / expected)[~torch.eye(3, dtype=torch.bool)].sum()
    assert statistic < chi2.ppf(0.9999, df=5)


def slow_quota(sizes, total):
    exact = [Fraction(size * total, sum(sizes)) for size in sizes]
    quota = [int(share) for share in exact]
    by_remainder = sorted(range(len(sizes)), key=lambda k: (quota[k] - exact[k], k))
    for k in by_remainder[: total - sum(quota)]:
        quota[k] += 1
    return quota


@pytest.mark.parametrize("sizes", [[50, 30, 21], [1, 1, 1, 1], [0, 7, 3], [178, 182, 177, 183, 181]])
def test_quota_is_the_largest_remainder_rule(sizes):
    for total in range(sum(sizes) + 1):
        quota = stratified_quota(torch.tensor(sizes), total).tolist()
        assert quota == slow_quota(sizes, total)
        assert sum(quota) == total


def test_a_larger_quota_contains_a_smaller_one():
    labels = torch.arange(3).repeat_interleave(10)
    small, large = (
        draw_quota(labels, torch.full((3,), count), torch.Generator().manual_seed(0)) for count in (2, 6)
    )
    assert (large | ~small).all()
    assert int(large.sum()) == 18


def test_digest_is_of_the_content():
    data = gaussian_images(per_class=2)
    same = ImageSet(data.images.clone(), data.labels.clone(), data.classes, name="other")
    assert same.digest() == data.digest()
    brighter = data.images.clone()
    brighter[0, 0, 0, 0] += 1e-6
    others = [
        ImageSet(brighter, data.labels, data.classes),
        data.with_label_noise(0.3, seed=0),
        ImageSet(data.images, data.labels, ("x", "y", "z")),
        ImageSet(data.images.view(6, 1, 4, 16), data.labels, data.classes),
    ]
    assert len({data.digest(), *(other.digest() for other in others)}) == 5


def test_digest_reads_through_strides():
    data = gaussian_images(per_class=2)
    strided = ImageSet(data.images.permute(0, 1, 3, 2), data.labels, data.classes)
    packed = ImageSet(data.images.permute(0, 1, 3, 2).contiguous(), data.labels, data.classes)
    assert strided.digest() == packed.digest() != data.digest()


# Sets cut by class: nothing lost, nothing renamed, bad requests refused.


def test_the_two_sides_hold_every_image_once_under_its_own_name():
    data = gaussian_images(class_count=6, per_class=5, seed=3)
    known, new = split_classes(data, (4, 1))
    assert new.classes == (data.classes[1], data.classes[4])
    for side in (known, new):
        for k, name in enumerate(side.classes):
            wanted = data.images[data.labels == data.classes.index(name)]
            assert torch.equal(side.images[side.labels == k], wanted)
    assert len(known) + len(new) == len(data)


@pytest.mark.parametrize(
    ("left_out", "message"),
    [
        ((0, 6), "from 0 to 5"),
        ((1, 1), "each once"),
        ((), "at least 1"),
        ((0, 1, 2, 3, 4), "leave at least 2"),
    ],
)
def test_what_is_no_split_is_refused(left_out, message):
    with pytest.raises(ValueError, match=message):
        split_classes(gaussian_images(class_count=6), left_out)


def test_a_single_class_is_left_out():
    data = gaussian_images(class_count=4, per_class=5, seed=3)
    known, new = split_classes(data, (2,))
    assert (known.classes, new.classes) == (("0", "1", "3"), ("2",))
    assert torch.equal(new.images, data.images[data.labels == 2])
    assert new.labels.tolist() == [0] * 5
    assert new.name == data.name
    without = data.subset((data.labels != 2).nonzero().flatten())
    with pytest.raises(ValueError, match="every class must have at least one image; got none of '2'"):
        split_classes(without, (2,))


def test_images_of_a_folder_keep_their_names_where_classes_are_left_out(tmp_path):
    from PIL import Image

    for name in "abcd":
        (tmp_path / name).mkdir()
        for k in range(2):
            Image.new("L", (4, 4), 10 * k).save(tmp_path / name / f"{k}.png")
    data = open_images(f"folder:{tmp_path}", cache=tmp_path / "cache")
    for part in split_classes(data, (2,)):
        names = [part.name_of(row) for row in range(len(part))]
        assert [name.split("/")[-2] for name in names] == [part.classes[k] for k in part.labels.tolist()]


def test_draws_follow_the_seed_and_vary():
    draws = [draw_classes(10, 3, seed) for seed in range(8)]
    assert draws == [draw_classes(10, 3, seed) for seed in range(8)]
    assert len(set(draws)) > 4
    assert all(len(set(drawn)) == 3 and list(drawn) == sorted(drawn) for drawn in draws)
    with pytest.raises(ValueError, match="must leave at least 2"):
        draw_classes(4, 3, seed=0)
    assert {draw_classes(4, 1, seed) for seed in range(40)} == {(0,), (1,), (2,), (3,)}


# Bad images, labels and classes, and bad ways to draw sets from good ones: each is one clear error.


CLASSES = ("ape", "bee")


def image_set(images=GOOD, labels=LABELS, classes=CLASSES):
    return ImageSet(images, labels, classes)


def changed(value):
    images = GOOD.clone()
    images[2, 0, 1, 1] = value
    return images


SETS = {
    "float64": (lambda _: image_set(GOOD.double()), "must be a float32 tensor; got torch.float64"),
    "uint8": (lambda _: image_set((GOOD * 255).byte()), "open_images.* scales uint8 by 1/255"),
    "graph": (
        lambda _: image_set(GOOD.clone().requires_grad_()),
        r"not require a gradient; give images\.detach\(\)",
    ),
    "array": (lambda _: image_set(GOOD.numpy()), "must be a float32 tensor; got ndarray"),
    "three axes": (lambda _: image_set(GOOD[:, 0]), r"4 axes \(N, C, H, W\); got shape \(4, 3, 3\)"),
    "five axes": (lambda _: image_set(GOOD[None]), r"4 axes .* got shape \(1, 4, 1, 3, 3\)"),
    "no image": (lambda _: image_set(GOOD[:0], LABELS[:0]), "at least one pixel"),
    "NaN": (
        lambda _: image_set(changed(float("nan"))),
        "NaN or infinity in 1 of 4 images, the first at index 2",
    ),
    "infinity": (lambda _: image_set(changed(float("inf"))), "NaN or infinity in 1 of 4 images"),
    "0 to 255": (lambda _: image_set(GOOD * 255), r"got values from 0 to 255; divide by 255"),
    "normalised": (lambda _: image_set(GOOD * 2 - 1), "got values from -1 to 1; take the normalisation out"),
    "a little above 1": (lambda _: image_set(changed(1.001)), "got values from 0 to 1.001"),
    "lengths": (lambda _: image_set(labels=LABELS[:3]), "got 4 images and 3 labels"),
    "label above": (
        lambda _: image_set(labels=LABELS + 1),
        "0..1 because there are 2 classes; got labels from 1 to 2",
    ),
    "label below": (lambda _: image_set(labels=LABELS - 1), "got labels from -1 to 0"),
    "float labels": (
        lambda _: image_set(labels=LABELS.float()),
        "`labels` must be an int64 tensor; got torch.float32",
    ),
    "list of labels": (
        lambda _: image_set(labels=[0, 1, 0, 1]),
        "`labels` must be an int64 tensor; got list",
    ),
    "one-hot": (
        lambda _: image_set(labels=torch.eye(2).long()[LABELS]),
        r"1 axis \(N,\); got shape \(4, 2\)",
    ),
    "empty class": (
        lambda _: image_set(classes=("ape", "bee", "cat")),
        r"got none of 'cat' \(1 of 3 classes\)",
    ),
    "one class": (lambda _: image_set(labels=LABELS * 0, classes=("ape",)), "at least 2 classes"),
    "name that results need": (
        lambda _: image_set(classes=("ape", "all")),
        "which results need; got all. Rename it",
    ),
    "double name": (lambda _: image_set(classes=("ape", "ape")), "must all differ; got 'ape'"),
    "list of classes": (lambda _: image_set(classes=["ape", "bee"]), "must be a tuple of strings"),
    "number as class": (lambda _: image_set(classes=(0, 1)), "must be a tuple of strings"),
}

METHODS = {
    "per_class": (lambda _: image_set().per_class(3, 0), "got 3 but class 'ape' has 2; ask for fewer"),
    "per_class of an absent class": (
        lambda _: image_set().subset(torch.tensor([0, 2])).per_class(1, 0),
        "class 'bee' has 0",
    ),
    "per_class of none": (
        lambda _: image_set().per_class(0, 0),
        "`count` must be a whole number of at least 1",
    ),
    "split at 0": (lambda _: image_set().split(0.0, 0), r"`fraction` must lie in \(0, 1\)"),
    "split at 1": (lambda _: image_set().split(1.0, 0), r"`fraction` must lie in \(0, 1\)"),
    "split too small": (lambda _: image_set().split(0.25, 0), "leaves none of 'bee'"),
    "split too large": (
        lambda _: image_set().split(0.75, 0),
        "leaves none of 'ape' .it has 2.; .*add images",
    ),
    "fraction at 0": (lambda _: image_set().fraction(0.0, 0), r"`fraction` must lie in \(0, 1\]"),
    "fraction too small": (lambda _: image_set().fraction(0.01, 0), "leaves none of 'ape'"),
    "noise": (lambda _: image_set().with_label_noise(1.1, 0), "`rate` must lie in"),
    "seed": (lambda _: image_set().split(0.5, -1), "`seed` must be a whole number of at least 0"),
    "index": (
        lambda _: image_set().subset(torch.tensor([0, 4])),
        r"must lie in 0..3; got numbers from 0 to 4",
    ),
    "negative index": (lambda _: image_set().subset(torch.tensor([-1])), "got numbers from -1"),
    "mask": (lambda _: image_set().subset(LABELS == 0), r"got torch.bool .* mask.nonzero\(\)"),
    "no index": (lambda _: image_set().subset(LABELS[:0]), "at least one"),
    "negative pad": (lambda _: Augmentation(pad=-1), "`pad` must be a whole number of at least 0; got -1"),
    "half a pixel": (
        lambda _: Augmentation(cutout=0.5),  # type: ignore[arg-type]
        "`cutout` must be a whole number",
    ),
    "more classes than pixels": (
        lambda _: gaussian_images(5, shape=(1, 2, 2)),
        "must not exceed the 4 pixels",
    ),
    "too much noise": (lambda _: GaussianClasses(noise=0.2), "5 standard deviations around the means within"),
    "no separation": (
        lambda _: GaussianClasses(separation=0.0),
        "`separation` must be a finite number above 0",
    ),
}

BAD = {**SETS, **METHODS}


@pytest.mark.parametrize(("attempt", "fragment"), BAD.values(), ids=BAD.keys())
def test_bad_input_is_one_clear_error(tmp_path, attempt, fragment):
    with pytest.raises(ValueError, match=fragment):
        attempt(tmp_path)


def test_the_good_set_beside_the_bad_is_good():
    assert len(image_set()) == 4
