"""The gate: may this model follow that one? Two reports and tolerances in, a ruling on each out; no torch.

A tolerance is a sentence, such as ``"accuracy drops 1pt"`` or ``"flip_distance drops 10%"``. It is broken where the
95 % interval of the change, paired over the same images or over seeds, lies beyond it: noise alone breaks nothing.

>>> Tolerance.parse("accuracy drops 1pt")
Tolerance(quantity=Quantity(audit='accuracy', name='error', ...), direction='drops', amount=0.01, relative=False...)
"""

from clearance.gate.formats import junit, markdown
from clearance.gate.ruling import Outcome, rule
from clearance.gate.tolerance import QUANTITIES, Tolerance

__all__ = ["QUANTITIES", "Outcome", "Tolerance", "junit", "markdown", "rule"]
