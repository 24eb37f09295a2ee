"""What is drawn anew for every seed of a comparison, alike for all methods: samples, and wrong labels."""

import dataclasses

from clearance._rng import derived_seed
from clearance.data.samples import draw_samples
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
