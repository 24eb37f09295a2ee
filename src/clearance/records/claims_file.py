"""A ``claims.toml``: what a paper claims, with a row for every number or ordering that can be checked.

::

    paper = "sato-2019"          reference = "..."          method = "foca"     rivals = ["plain", "dropout"]

    [scaled]                     what is smaller than in the paper, by dataset
    digits = "8x8 digits in place of photographs"

    [[claim]]
    id = "A3"                    as in the sheet of the paper
    kind = "order"               "order", "ratio", "value" or "qualitative" (judged by an order that stands for it)
    words = "Fewest errors of all methods up to 1,000 images."
    value = "an ordering"        what the paper prints
    where = "Fig. 2"             table or figure
    datasets = ["cifar10"]       what it is about
    also = ["digits"]            stand-ins on which an ordering can be judged
    note = ""
    study = "noise"              which study measures it, where the recipe alone does not
    source = "[S] slides"        where the number or ordering is known from, if not from the paper itself
    recalled = false             true: known from memory alone; shown as such, never judged, not called the paper's
      [[claim.reading]]          see `Reading`
      is = "lower"
      audit = "co_adaptation"
      measure = "error"
      context = {head = "retrained", samples = {at_most = 1000}}

A value of a ``context`` is a plain value, a list (each of them, a comparison for each), or a table with one of
``rank`` (0 the smallest number in the records, -1 the largest), ``at_most`` (every number up to it) and
``by_dataset`` (a plain value for each dataset).
"""

import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any

from clearance._checks import check_choice
from clearance.records.claims import Claim, PaperClaims, Reading

RENAMED = {"is": "direction", "reading": "readings", "claim": "claims"}  # words of the file that Python keeps


def parse_claims(text: str, source: str = "claims.toml") -> PaperClaims:
    r"""The claims of the text of a ``claims.toml``; `source` is what errors call it.

    Raises:
        ValueError: It is no TOML of this form; the message names the claim.

    >>> parse_claims('paper = "x-2020"\nreference = ""\nmethod = "foca"\nrivals = []\nclaim = []').paper
    'x-2020'
    """
    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{source} must be TOML; got: {error}.") from error
    claims = tree.get("claim", [])
    made = [_claim(row, f"{source}, claim {row.get('id', place)}") for place, row in enumerate(claims)]
    found: PaperClaims = _filled(PaperClaims, {**tree, "claim": made}, source)
    return found


def _claim(row: Mapping[str, Any], source: str) -> Claim:
    readings = [_filled(Reading, reading, source) for reading in row.get("reading", [])]
    claim: Claim = _filled(Claim, {**row, "reading": readings}, source)
    return claim


def _filled(kind: Any, row: Mapping[str, Any], source: str) -> Any:
    """A dataclass from a table; a key that is missing or unknown is named."""
    values = {RENAMED.get(key, key): tuple(v) if isinstance(v, list) else v for key, v in row.items()}
    known = {entry.name: entry for entry in fields(kind)}
    for key in values:
        check_choice(f"{source}: a key", key, known)
    needed = [
        n for n, entry in known.items() if entry.default is MISSING and entry.default_factory is MISSING
    ]
    written = {name: key for key, name in RENAMED.items()}
    absent = [written.get(name, name) for name in needed if name not in values]
    if absent:
        raise ValueError(f"{source} must have {', '.join(absent)}; it is missing. Add it.")
    try:
        return kind(**values)
    except ValueError as error:
        raise ValueError(f"{source}: {error}") from error
