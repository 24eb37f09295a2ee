"""What one run is: a method of a recipe under one seed, and the networks that its audits need beside its own."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clearance._checks import check_count
from clearance.audits import Audit
from clearance.experiments.audit_plan import AuditPlan
from clearance.experiments.build import RunData
from clearance.experiments.method import Method
from clearance.experiments.recipe import Recipe, identifier, to_tree
from clearance.models import Classifier
from clearance.regimes import Regime
from clearance.regimes.describe import describe

FIRST_SOURCE = 1000
"""The seed of the network for seed 0 that audits make images on: above every seed that a comparison reaches."""


@dataclass(frozen=True)
class RunPlan:
    """What one run is: a method of a recipe under one seed.

    Args:
        recipe: The whole comparison; only what concerns this run identifies it.
        method: Name of the method.
        seed: Decides first weights, batch order, partial sets.
        regime: Takes the place of the method's regime (for losses and regimes written by users).
        model: Builds a fresh classifier in place of the recipe's; called under the run's seed.
        audits: In place of the recipe's.
    """

    recipe: Recipe
    method: str
    seed: int
    regime: Regime | None = None
    model: Callable[[], Classifier] | None = None
    audits: AuditPlan | None = None

    def __post_init__(self) -> None:
        check_count("seed", self.seed, minimum=0)

    @property
    def settings(self) -> Method:
        """The method's numbers."""
        return self.recipe.methods[self.method]

    @property
    def title(self) -> str:
        """What people who wait for it are told."""
        return f"{self.method}, seed {self.seed}"

    @property
    def folder(self) -> str:
        """Name of the run's directory: it changes when anything changes that can move the run's numbers."""
        shared = to_tree(self.recipe)
        for name in ("methods", "seeds", "audits", "audit_settings", "root"):
            del shared[name]
        told = {"recipe": shared, "name": self.method, "method": to_tree(self.settings)}
        told["regime"] = describe(self.regime)
        safe = "".join(c if c.isalnum() or c in "-_." else "-" for c in self.method)
        return f"{safe}-seed{self.seed}-{identifier(told)}"

    @property
    def audit_plan(self) -> AuditPlan:
        """What is asked of the trained network.

        Raises:
            ValueError: If the recipe has a name, setting or source that nothing has.
        """
        return AuditPlan.of_recipe(self.recipe) if self.audits is None else self.audits

    def resolved_audits(self, data: RunData, directory: Path | None, **given: Any) -> tuple[Audit, ...]:
        """The audits with all that they need.

        Args:
            data: What was drawn for the run's seed. Images kept back whose labels are noisy are not chosen by.
            directory: Where runs are kept: those of `sources` must be among them.
            given: What else :meth:`AuditPlan.resolved` takes.

        Raises:
            ValueError, FileNotFoundError: As :meth:`AuditPlan.resolved`.
        """
        folders = {
            audit: None if directory is None else directory / run.folder
            for audit, run in self.sources.items()
        }
        return self.audit_plan.resolved(
            test=data.test,
            validation=data.validation if self.recipe.label_noise == 0 else None,
            networks=folders,
            root=self.recipe.root,
            size=self.recipe.size,
            **given,
        )

    @property
    def sources(self) -> Mapping[str, "RunPlan"]:
        """The run of the network that an audit makes its images on, by audit.

        ``audit_settings: {robustness: {source: plain}}`` in a recipe asks for it. It is one more run of
        the method that is named, under a seed that nothing else has: alike for all methods of a seed, and never the
        network itself that is attacked.

        Raises:
            ValueError: If the recipe names a method that it does not have.

        >>> recipe = Recipe(audits=("robustness",), audit_settings={"robustness": {"source": "plain"}},
        ...                 methods={"plain": Method(), "mine": Method(lr=0.1)})
        >>> [(audit, run.method, run.seed) for audit, run in RunPlan(recipe, "mine", 2).sources.items()]
        [('robustness', 'plain', 1002)]
        """
        bare = dataclasses.replace(self.recipe, audits=(), audit_settings={})
        named = self.audit_plan.sources
        return {audit: RunPlan(bare, name, FIRST_SOURCE + self.seed) for audit, name in named.items()}


def sources_of(plans: Iterable[RunPlan]) -> list[RunPlan]:
    """The runs whose networks the audits of `plans` need, each once, in the order in which they are needed.

    >>> sources_of([RunPlan(Recipe(methods={"plain": Method()}), "plain", 0)])
    []
    """
    return list({run.folder: run for plan in plans for run in plan.sources.values()}.values())
