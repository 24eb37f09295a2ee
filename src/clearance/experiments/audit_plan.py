"""Which audits, with which settings: names, objects and settings in, resolved audits out."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from os import PathLike
from pathlib import Path
from typing import Any

from torch import Tensor

from clearance._checks import check_choice, check_count
from clearance.audits import Audit
from clearance.audits._samples import first_half
from clearance.audits.rejection import check_enough
from clearance.data import ImageSet, Preprocessing
from clearance.data.image_set import shared_images
from clearance.data.intake import open_images, open_unlabelled
from clearance.data.slices import read_slices
from clearance.data.stored import StoredImageSet
from clearance.experiments.catalogue import AUDIT_GROUPS, AUDITS, audit_names, resolve
from clearance.experiments.datasets import check_not_a_path, load_dataset
from clearance.experiments.recipe import Recipe
from clearance.experiments.saved import load_model
from clearance.models import Classifier
from clearance.runs import read_result
from clearance.vocabulary import Outcome, Status

MODEL_AUDITS = (
    "accuracy",
    "duplicates",
    "set_facts",
    *(("label_suspects",) if find_spec("cleanlab") else ()),
    "preprocessing",
    "performance",
    "confusions",
    "mistakes",
    "common_corruptions",
    "calibration",
    "out_of_distribution",
    "minimal_perturbation",
)
"""The audits of one model by default, in their order.

Data, input, performance, mistakes, corruptions, confidence, unknowns, attack. ``label_suspects`` is one of them where
cleanlab is installed.
"""

NEEDS_UNKNOWN = "out_of_distribution"
SHARED = 0.05  # share of images that two sets may have in common: small pictures repeat by chance
SOURCE, OTHER, VALIDATION = "source", "other", "validation"  # settings that a plan fills in, as are these:
IMAGES, SLICES = "images", "slices"
FEWER = ("searched", "adaptive_images")  # numbers of test images that are below `images` by default
OF_OTHERS = ("out_of_distribution", "label_suspects")  # audits whose `images` are not test images alone

Settings = Mapping[str, Mapping[str, Any]]
"""Settings by audit and name, where they differ from the defaults."""


@dataclass(frozen=True)
class AuditPlan:
    """The chosen audits, each once and in the given order.

    Args:
        audits: The audits with their settings; `resolved` adds what depends on a run.
        sources: By audit, the method on whose network it makes images.

    >>> plan = AuditPlan.of(["accuracy", "minimal_perturbation"], {"minimal_perturbation": {"steps": 5}})
    >>> plan.names, plan.audits[1].steps
    (('accuracy', 'minimal_perturbation'), 5)
    """

    audits: tuple[Audit, ...]
    sources: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        asked: Sequence[str | Audit] | None,
        settings: Settings | None = None,
        *,
        usual: Sequence[str] = MODEL_AUDITS,
        defaults: Settings | None = None,
        unknown: bool = True,
    ) -> "AuditPlan":
        """The plan for the given audits.

        Args:
            asked: Names of the catalogue, and audits with their own settings; ``"all"`` stands for every name,
                ``"few-labels"`` for ``co_adaptation`` and ``linear_probe``; None means `usual`.
            settings: More settings; each must belong to one of the given audits.
            usual: The default names.
            defaults: Settings that `settings` override, for any audits.
            unknown: Whether there are out-of-distribution images. Without them the audit that needs them is left
                out, unless it has its own images.

        Raises:
            TypeError: If `asked` is one word.
            ValueError: If a name or setting is unknown, an audit is there twice, settings are of another audit, or the
                audit that needs images of unknown things is asked for by name and there are none.
        """
        if isinstance(asked, str):
            raise TypeError(f"`audits` must be a list of names; got the string {asked!r}. Write [{asked!r}].")
        given = tuple(usual if asked is None else asked)
        own = {audit.name: audit for audit in given if isinstance(audit, Audit)}
        names = _names(given, own)
        chosen = {
            name: {**(defaults or {}).get(name, {}), **(settings or {}).get(name, {})} for name in names
        }
        _check_settings(settings or {}, names)
        others = chosen.get(NEEDS_UNKNOWN, {}).get(OTHER), getattr(own.get(NEEDS_UNKNOWN), OTHER, None)
        lacking = not unknown and all(
            one is None or (isinstance(one, str | list | tuple) and not one) for one in others
        )
        if lacking and asked is not None and NEEDS_UNKNOWN in [getattr(one, "name", one) for one in given]:
            raise ValueError(
                f"audit {NEEDS_UNKNOWN!r} needs out-of-distribution images; give them with --unknown "
                "(in Python: unknown=...), or leave the audit out."
            )
        wanted = [name for name in names if not (lacking and name == NEEDS_UNKNOWN)]
        audits = tuple(_with_settings(name, own.get(name), chosen[name]) for name in wanted)
        return cls(audits, {n: chosen[n][SOURCE] for n in wanted if isinstance(chosen[n].get(SOURCE), str)})

    @classmethod
    def of_recipe(cls, recipe: Recipe) -> "AuditPlan":
        """The plan of a recipe.

        Raises:
            ValueError: If a name or setting is unknown, or a source is not a method of the recipe.

        >>> AuditPlan.of_recipe(Recipe(audits=("accuracy",))).names
        ('accuracy',)
        """
        plan = cls.of(recipe.audits, defaults=recipe.audit_settings)
        for name in recipe.audit_settings.keys() - plan.names:
            _with_settings(name, None, recipe.audit_settings[name])  # raises for what it does not take
        for audit, source in plan.sources.items():
            check_choice(f"{SOURCE} of audit {audit!r}, a method of the recipe", source, recipe.methods)
        return plan

    @property
    def names(self) -> tuple[str, ...]:
        """The audits' names."""
        return tuple(audit.name for audit in self.audits)

    def _check_used(self, setting: str, given: Any, what: str, users: str) -> None:
        if given is not None and not any(hasattr(audit, setting) for audit in self.audits):
            raise ValueError(
                f"{what} were given, but none of the audits {list(self.names)} uses them; add {users}, or leave them "
                "out."
            )

    def resolved(
        self,
        *,
        test: ImageSet,
        validation: ImageSet | None = None,
        unknown: ImageSet | None = None,
        images: int | None = None,
        slices: str | PathLike[str] | None = None,
        networks: Mapping[str, Path | None] | None = None,
        root: str | None = None,
        preprocessing: Preprocessing | None = None,
    ) -> tuple[Audit, ...]:
        """The audits with everything they need: other datasets, validation images, networks to make images on.

        Args:
            test: The test images.
            validation: Images with correct labels that the model was not trained on, for choices.
            unknown: Out-of-distribution images.
            images: Attacks and similar audits use at most this many test images, the same number of each class.
            slices: A CSV file with what is known of each test image; see :func:`clearance.data.slices.read_slices`.
            networks: By audit, the directory of the run whose network it makes images on; None if no runs are kept.
            root: The folder of datasets' files.
            preprocessing: The preprocessing of the test images, which folders of images get, too.

        Raises:
            FileNotFoundError: If a dataset's files are missing.
            ValueError: If a dataset is unknown, a network is missing or its training failed, no audit uses the
                out-of-distribution images, or `images` are fewer than the classes.

        >>> from clearance.audits import Accuracy, MinimalPerturbation, Likelihood
        >>> from clearance.data import gaussian_images
        >>> plan = AuditPlan.of([Accuracy(), MinimalPerturbation(), Likelihood()])
        >>> _, flips, likelihood = plan.resolved(test=gaussian_images(), unknown=gaussian_images(seed=1), images=12)
        >>> flips.images, likelihood.images, likelihood.other
        (12, 12, ImageSet('gaussian', 60 images of shape (1, 8, 8), 3 classes))
        """
        self._check_used(OTHER, unknown, "out-of-distribution images", "out_of_distribution or likelihood")
        self._check_used(SLICES, slices, "slices", "performance")
        if images is not None:
            _check_images(images, test)
        ready = []
        for audit in self.audits:
            given: dict[str, Any] = {}
            if audit.name in self.sources:
                given[SOURCE] = _network(audit.name, (networks or {}).get(audit.name))
            other = getattr(audit, OTHER, None)
            if isinstance(other, str):
                given[OTHER] = named_images(OTHER, other, test, preprocessing, root)
            elif other is None and unknown is not None and hasattr(audit, OTHER):
                given[OTHER] = unknown
            if slices is not None and hasattr(audit, SLICES):
                given[SLICES] = read_slices(slices, test)
            kept = getattr(audit, VALIDATION, validation)
            if isinstance(kept, str):
                given[VALIDATION] = named_images(VALIDATION, kept, test, preprocessing)
            elif validation is not None and kept is None:
                given[VALIDATION] = validation
            if images is not None and hasattr(audit, IMAGES) and audit.name not in OF_OTHERS:
                fewer = {name: min(images, getattr(audit, name)) for name in FEWER if hasattr(audit, name)}
                given |= {IMAGES: images, **fewer}
            ready.append(_replaced(audit, given))
        return tuple(ready)


def named_images(
    setting: str,
    given: str,
    test: ImageSet,
    preprocessing: Preprocessing | None = None,
    root: str | None = None,
) -> ImageSet:
    """The images that an audit's `other` or `validation` names, prepared like the test images."""
    if setting == VALIDATION:
        return open_images(given, preprocessing, like=test)
    return open_unlabelled(given, test, preprocessing) if ":" in given else load_dataset(given, "test", root)


def by_usefulness(audits: Sequence[Audit]) -> list[Audit]:
    """The audits in the order of `MODEL_AUDITS`; others come last, in their given order.

    >>> from clearance.audits import Accuracy, Calibration, LinearProbe
    >>> [audit.name for audit in by_usefulness([Calibration(), LinearProbe(), Accuracy()])]
    ['accuracy', 'calibration', 'linear_probe']
    """
    places = {name: place for place, name in enumerate(MODEL_AUDITS)}
    return sorted(audits, key=lambda audit: places.get(audit.name, len(places)))


def fewer_images(audits: Sequence[Audit], test: ImageSet) -> dict[str, Any]:
    """The settings that name audits which use only some test images; empty if all use all of them.

    >>> from clearance.audits import Accuracy, MinimalPerturbation
    >>> from clearance.data import gaussian_images
    >>> fewer_images([Accuracy(), MinimalPerturbation(images=12)], gaussian_images(class_count=3, per_class=20))
    {'fewer_images': {'images': 60, 'audits': {'minimal_perturbation': 12}}}
    """
    limits = {audit.name: getattr(audit, IMAGES, None) for audit in audits if audit.name not in OF_OTHERS}
    used = {name: max(limit, test.class_count) for name, limit in limits.items() if isinstance(limit, int)}
    fewer = {name: count for name, count in used.items() if count < len(test)}
    return {"fewer_images": {"images": len(test), "audits": fewer}} if fewer else {}


def unknown_images(
    given: Any,
    test: ImageSet,
    preprocessing: Preprocessing | None = None,
    *,
    cache: str | PathLike[str] | None = None,
    root: str | Path | None = None,
    normalised: "tuple[Tensor, Tensor] | None" = None,
) -> ImageSet:
    """Out-of-distribution images, prepared like the test images.

    Args:
        given: ``"folder:PATH"``, ``"npz:PATH"``, the name of a dataset, whose test images are used, or anything else
            that `open_unlabelled` takes.
        test: The test images.
        preprocessing: The preprocessing of the test images.
        cache: Folder for decoded pictures.
        root: The folder that holds the files of a named dataset.
        normalised: As in :func:`clearance.data.open_images`.

    Raises:
        ValueError: If the images have another size than the test images, or more than a few are test images; if the
            dataset is unknown, or there are too few test images to choose a threshold.
        FileNotFoundError: If a file is missing.

    >>> from clearance.data import gaussian_images
    >>> unknown_images("digits", gaussian_images())
    ImageSet('digits', 497 images of shape (1, 8, 8), 1 classes)
    """
    check_enough(int(first_half(test.labels, seed=0).sum()))
    if isinstance(given, str) and ":" not in given:
        check_not_a_path("unknown", given)
        given = load_dataset(given, "test", root)
    found = open_unlabelled(given, test, preprocessing, cache=cache, normalised=normalised)
    _check_strange(found, test)
    return found


def _check_strange(unknown: ImageSet, test: ImageSet) -> None:
    """Raise if more than a few of the unknown images are test images; sets that stay on disk are not read for it."""
    if any(isinstance(part, StoredImageSet) for part in (unknown, test)):
        return
    shared = shared_images(unknown, test)
    if shared > SHARED * len(unknown):
        raise ValueError(
            f"`unknown` must be images of other classes than the model's; {shared} of these {len(unknown)} are test "
            "images, pixel for pixel. Give other images."
        )


def _names(given: Sequence[str | Audit], own: Mapping[str, Audit]) -> tuple[str, ...]:
    """The names, each once."""
    names = [audit.name if isinstance(audit, Audit) else audit for audit in given]
    if twice := [name for name in own if names.count(name) > 1]:
        raise ValueError(
            f"`audits` must have each audit once; got {twice[0]!r} twice. Audit twice for two settings."
        )
    for name in names:
        check_choice("audit", name, [*own, *AUDITS, *AUDIT_GROUPS])
    return audit_names(names)


def _check_settings(settings: Settings, names: Sequence[str]) -> None:
    for audit in settings:
        if audit not in names:
            check_choice("audit", audit, AUDITS)
            raise ValueError(
                f"settings must belong to the chosen audits; got settings of {audit!r}, and the chosen audits are "
                f"{', '.join(names)}. Add it: --audits {','.join((*names, audit))}"
            )


def _with_settings(name: str, own: Audit | None, settings: Mapping[str, Any]) -> Audit:
    """An audit of this name with these settings; the name of a source is left to `resolved`."""
    given = {key: tuple(value) if isinstance(value, list) else value for key, value in settings.items()}
    kind: Any = resolve("audit", name, AUDITS) if own is None else type(own)
    for key in given:
        check_choice(f"setting of audit {name!r}", key, [one.name for one in dataclasses.fields(kind)])
    if isinstance(given.get(SOURCE), str | None):
        given.pop(SOURCE, None)
    try:
        return kind(**given) if own is None else _replaced(own, given)
    except (TypeError, AttributeError) as error:  # of a value that the audit's own checks do not expect
        shown = ", ".join(f"{key}={value!r}" for key, value in given.items())
        raise ValueError(
            f"settings of audit {name!r} must be of the types that it takes; got {shown}: {error}. Correct them."
        ) from error


def _replaced(audit: Audit, given: Mapping[str, Any]) -> Audit:
    changes: Any = given
    return dataclasses.replace(audit, **changes) if changes else audit  # type: ignore[type-var]  # a dataclass


def _check_images(images: int, test: ImageSet) -> None:
    check_count(IMAGES, images)
    if images < test.class_count:
        raise ValueError(
            f"`images` must be at least the number of classes, {test.class_count}, one image of each; got {images}."
        )


def _network(audit: str, folder: Path | None) -> Classifier:
    """The network of a finished run."""
    if folder is None or not folder.exists():
        where = "no directory of runs" if folder is None else f"none in {folder}"
        raise ValueError(
            f"`{SOURCE}` of audit {audit!r} must be a trained network of the same directory of runs; got {where}. "
            "Run `clearance compare`, which trains it automatically, or leave the setting out."
        )
    _, result = read_result(folder)
    ended = Status(Outcome(result["outcome"]), result["step"], result["reason"])
    if not ended.good:
        raise ValueError(
            f"`{SOURCE}` of audit {audit!r} must be a network whose training finished; got one in {folder} that "
            f"{ended}. Name another method, or leave the setting out."
        )
    return load_model(folder)
