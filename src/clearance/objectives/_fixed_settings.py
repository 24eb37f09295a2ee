"""Objectives whose parts are made from their settings, which therefore stay as they are."""

from typing import Any, ClassVar

from clearance.objectives._objective import Objective


class FixedSettings(Objective):
    """Refuses a change of settings that other parts were made from: it would show, and do nothing.

    Attributes:
        fixed_settings: Their names; they count as fixed once the constructor has called `_fix_settings`.

    >>> class Doubled(FixedSettings):
    ...     fixed_settings = frozenset({"weight"})
    ...     def __init__(self, weight):
    ...         super().__init__()
    ...         self.weight, self._double = weight, 2 * weight
    ...         self._fix_settings()
    >>> Doubled(1.0).weight = 2.0
    Traceback (most recent call last):
        ...
    AttributeError: `weight` of Doubled cannot be changed once it is made, because other parts were made from it; make
    another one.
    """

    fixed_settings: ClassVar[frozenset[str]] = frozenset()

    def _fix_settings(self) -> None:
        self._fixed = True

    def __setattr__(self, name: str, value: Any) -> None:
        """As of any module, but for these."""
        if name in self.fixed_settings and self.__dict__.get("_fixed", False):
            raise AttributeError(
                f"`{name}` of {type(self).__name__} cannot be changed once it is made, because other parts were made "
                "from it; make another one."
            )
        super().__setattr__(name, value)
