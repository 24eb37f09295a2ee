"""Measurements on disk: what was found, by which method, with which seed, and what it adds up to.

A *record* is a measurement with its provenance (dataset, method, seed). A *report* is every record of a
comparison with the recipe and the versions that made them; it is one folder that machines can read. A
*summary* is what follows from the records over several seeds; it is computed, never stored by hand.

>>> from clearance.vocabulary import Measurement
>>> error = Measurement("accuracy", "error", 0.02, "fraction", n=500, better="lower")
>>> Record("digits", "plain", 0, error).to_json()["value"]
0.02
"""

from clearance.records.derived import SummaryRow as SummaryRow
from clearance.records.record import ExhibitRecord as ExhibitRecord
from clearance.records.record import Record as Record
from clearance.records.record import RunNote as RunNote
from clearance.records.store import Report as Report
from clearance.records.store import load_report as load_report
