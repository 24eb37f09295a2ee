"""The gate: may this model follow that one? Two reports and tolerances in, a result for each out; no torch.

A tolerance is a sentence, such as ``"accuracy drops 1pt"`` or ``"flip_distance drops 10%"``. It fails where the
95 % interval of the change, paired over the same images or over seeds, lies beyond it: noise alone does not fail it.

>>> Tolerance.parse("accuracy drops 1pt")
Tolerance(quantity=Quantity(audit='accuracy', name='error', ...), direction='drops', amount=0.01, relative=False...)
"""

from clearance.gate.formats import junit as junit
from clearance.gate.formats import markdown as markdown
from clearance.gate.results import GateStatus as GateStatus
from clearance.gate.results import check as check
from clearance.gate.tolerance import QUANTITIES as QUANTITIES
from clearance.gate.tolerance import Tolerance as Tolerance
