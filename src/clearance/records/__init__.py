"""Measurements on disk, with dataset, method and seed, and statistics over seeds.

A *record* is a measurement with its provenance (dataset, method, seed). A *report* is a folder with all records of a
comparison, its recipe and the versions of the libraries. The *summary* is computed from the records.

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
