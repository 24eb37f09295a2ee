"""From records to something that people read: a page, a card, a table.

Nothing here measures, trains or remembers: a report is a function of what is stored. Every number that a
page prints is in ``report.json``, as a measurement or in its summary, and every point that it draws is in an
exhibit that it names.

>>> from clearance.records import Report
>>> page = render_page(Report({}, {}, "clearance compare", "2026-01-01T00:00:00+00:00"))
>>> "Nothing was measured" in page
True
"""

from clearance.report.card import Card as Card
from clearance.report.page import render_page as render_page
from clearance.report.page import write_page as write_page
from clearance.report.terminal import comparison_table as comparison_table
