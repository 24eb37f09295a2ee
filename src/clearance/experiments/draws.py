"""What is drawn anew for every seed of a comparison, alike for all methods: samples, and wrong labels."""

import dataclasses

import torch

from clearance._rng import derived_seed
from clearance.data.subsets import draw_samples
from clearance.experiments.build import RunData
from clearance.experiments.datasets import SPLIT_SEED
from clearance.experiments.recipe import Recipe


def drawn_data(recipe: Recipe, data: RunData, seed: int) -> RunData:
    """The images of one seed: a validation set kept back, few samples, noisy labels, as the recipe says.

    The validation set is the same for every seed. What is drawn depends on data and seed alone: at a higher rate of
    noise the same labels are wrong and more; a larger sample contains a smaller one. Where training labels are
    noisy, so are those that choices are made by: of the validation set, and of the part of the training set that
    stands in for the test set (``held_out``). A true test set is never touched.

    Args:
        recipe: Read for ``validation``, ``samples``, ``balanced``, ``label_noise`` and ``held_out``.
        data: What the recipe's dataset holds, for all seeds.
        seed: Of the run.

    Raises:
        ValueError: If there are not so many images, or a class would be left out of the validation split.

    >>> from clearance.data import gaussian_images
    >>> data = RunData(gaussian_images(), gaussian_images(seed=1))
    >>> drawn = drawn_data(Recipe(samples=6, label_noise=0.5), data, seed=0)
    >>> len(drawn.train), drawn.test is data.test
    (6, True)
    """
    train, test, validation = data.train, data.test, None
    if recipe.validation > 0:
        train, validation = train.split(recipe.validation, SPLIT_SEED)
    if recipe.samples is not None:
        train = draw_samples(train, recipe.samples, seed, balanced=recipe.balanced)
    rate = recipe.label_noise
    if rate > 0:
        train = train.with_label_noise(rate, seed)
        if validation is not None:
            validation = validation.with_label_noise(rate, derived_seed(seed, "validation"))
        if recipe.held_out > 0:
            test = test.with_label_noise(rate, derived_seed(seed, "held_out"))
    return dataclasses.replace(data, train=train, test=test, validation=validation)


def check_draws(recipe: Recipe, data: RunData) -> None:
    """Raise ValueError unless every seed can have what the recipe draws: before anything is trained.

    Args:
        recipe: As `drawn_data` reads it; where its few images are class-balanced, each class keeps a label.
        data: What the recipe's dataset holds, for all seeds.

    >>> from clearance.data import gaussian_images
    >>> check_draws(Recipe(samples=2), RunData(gaussian_images(class_count=3), gaussian_images(class_count=3)))
    Traceback (most recent call last):
    ...
    ValueError: `small_data` must be at least 3, one image of each class; got 2. Take more.
    """
    count, classes = recipe.samples, data.train.class_count
    if count is None:
        return
    if count > len(data.train):
        raise ValueError(f"`small_data` must not exceed the {len(data.train)} training images; got {count}.")
    if not recipe.balanced:
        return
    if count < classes:
        raise ValueError(
            f"`small_data` must be at least {classes}, one image of each class; got {count}. Take more."
        )
    for seed in range(recipe.seeds if recipe.label_noise > 0 else 1):
        sizes = torch.bincount(drawn_data(recipe, data, seed).train.labels.cpu(), minlength=classes)
        if int(sizes.min()) == 0:
            lost = data.train.classes[int(sizes.argmin())]
            raise ValueError(
                f"`noisy_labels` of {recipe.label_noise:g} leaves no label of class {lost!r} among {count} images "
                f"under seed {seed}, and methods and audits need one of each; take more images, or switch fewer labels."
            )
