"""The gate: may this model follow that one? Two reports and tolerances in, a ruling on each out; no torch.

A tolerance is a sentence, such as ``"accuracy drops 1pt"`` or ``"flip_distance drops 10%"``. It is broken where the
95 % interval of the change, paired over the same images or over seeds, lies beyond it: noise alone breaks nothing.

>>> Tolerance.parse("accuracy drops 1pt")
Tolerance(quantity=Quantity(audit='accuracy', name='error', ...), direction='drops', amount=0.01, relative=False...)
"""

from clearance.gate.formats import junit as junit
from clearance.gate.formats import markdown as markdown
from clearance.gate.ruling import Outcome as Outcome
from clearance.gate.ruling import rule as rule
from clearance.gate.tolerance import QUANTITIES as QUANTITIES
from clearance.gate.tolerance import Tolerance as Tolerance
