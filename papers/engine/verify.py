"""``python -m papers verify``: recompute what committed ledgers say from the values of their seeds.

Every mean, interval, p value and verdict of every ``results/**/ledger.json`` is computed again and compared, and so are
the verdicts in ``ledger.md``, and the pages that tell of them: their tables of verdicts and the numbers in their
sentences. `rewrite` judges the kept numbers by today's claims and writes the ledgers and tables anew.
"""

import dataclasses
import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from clearance.research import (
    compare_seeds,
    decode,
    encode,
    markdown_table,
    summarise,
    write_bytes,
)
from papers.engine.catalogue import paper, paper_claims
from papers.engine.judging import judge
from papers.engine.ledger import (
    BESIDE,
    SCALED,
    SCHEMA,
    JudgedStudy,
    Ledger,
    cost_rows,
    json_text,
    page_digest,
    report_in,
    with_means,
)
from papers.engine.printed import misprints
from papers.engine.tasks import Tree

ROOT = Path(__file__).parents[1]
FRONT = "README.md"  # of the project and of a paper: each percentage there has a ledger
TOLERANCE = 1e-9  # between versions of the libraries that sum and look up t


@dataclass(frozen=True)
class Verified:
    """What became of one ledger.

    Args:
        path: Its ``ledger.json``.
        problems: Where it says something else than its values do; none where all is well.
        checked: How many readings and rows were computed again.
    """

    path: Path
    problems: tuple[str, ...]
    checked: int


def verify(root: Path = ROOT) -> list[Verified]:
    """Every committed ledger below a folder, and the READMEs' tables of verdicts."""
    found = [verified(path) for path in ledgers(root)]
    for page in pages(root):
        text = page.read_text("utf-8")
        problems = unsupported(text, page.parent)
        if page.name == FRONT:
            problems += [f"no comment after {one} names its source" for one in without_source(text)]
        if text != with_tables(text, page.parent):
            problems.append("a table is not that of the ledgers")
        found.append(Verified(page, tuple(problems), 0))
    return found


def pages(root: Path = ROOT) -> list[Path]:
    """The pages that may say what ledgers have found: the papers' own, the front page and the documents."""
    above = root.parent
    return [*sorted(root.glob("*/README.md")), *above.glob("README.md"), *sorted(above.glob("docs/**/*.md"))]


def ledgers(root: Path = ROOT) -> list[Path]:
    """The committed ledgers of papers, whose folders are called AUTHOR_YEAR, below a folder."""
    pages = root.glob("*_20*/results/**/ledger.md")
    return sorted(page.with_suffix(".json") for page in pages)


def verified(path: Path) -> Verified:
    """One ledger, computed again, and the page beside it."""
    tree, said = read(path), path.with_suffix(".md").read_text("utf-8")
    found = _verified_claims(path, tree) if "claims" in tree else _verified_rows(path, tree)
    problems = [f"ledger.md has not “{words}”" for words in _origin(tree) if words not in said]
    if tree["page"] != page_digest(said):
        problems.append("ledger.md was changed after it was written: its digest is not that in ledger.json")
    return dataclasses.replace(found, problems=(*found.problems, *problems))


def _origin(tree: Tree) -> list[str]:
    """What made a ledger, in the words of its page."""
    versions = (f"{name} {version}" for name, version in tree["versions"].items())
    made = f"Commit: {tree['commit']}; recipe: {tree['recipe']}."
    return [f"`{tree['command']}`", tree["created"], made, *versions]


def _verified_rows(path: Path, tree: Tree) -> Verified:
    problems, said = [], path.with_suffix(".md").read_text("utf-8")
    for place, row in enumerate(tree["rows"]):
        problems += different(_recomputed(row, tree["rows"]), row, f"rows[{place}]")
    problems += misprints(said, tree["rows"]) + _other_passages(path, tree, said)
    return Verified(path, tuple(problems), len(tree["rows"]))


def _verified_claims(path: Path, tree: Tree) -> Verified:
    ledger = judged_again(tree, path.parent)
    again = encode(ledger.claim_rows())
    problems = different(again, encode(tree["claims"]), "claims")
    problems += different(ledger.counts(), tree["verdicts"], "verdicts")
    problems += different(ledger.scaled, tree["scaled"], "scaled")
    said = path.with_suffix(".md").read_text("utf-8")
    if ledger.verdicts_in_markdown() not in said:
        problems.append("ledger.md has other verdicts")
    for heading, table in ledger.sections().items():
        if heading in said and table not in said:
            problems.append(f"ledger.md has another table: {heading[3:]}")
    cost = [row.to_json() for row in cost_rows(ledger.report)]
    problems += different(encode(cost), encode(tree["cost"]), "cost")
    means = with_means(tree["measurements"])
    problems += different(means, tree["measurements"], "measurements")
    rest = said.replace(ledger.verdicts_in_markdown(), "")
    problems += misprints(rest, tree["measurements"]) + _other_passages(path, tree, said)
    readings = [one for j in ledger.judgements for one in j.readings if one.compared]
    return Verified(path, tuple(problems), len(readings) + len(cost) + len(means))


def _other_passages(path: Path, tree: Tree, said: str) -> list[str]:
    """What `ledger.md` has of medians and counts otherwise than the values give it."""
    name, study = _study(path, tree)
    found = paper(name).studies.get(study) if name else None
    again = () if found is None else found.passages_again(tree, path.parent)
    return [f"ledger.md has not “{passage[:60]}…”" for passage in again if passage not in said]


def _study(path: Path, tree: Tree) -> tuple[str, str]:
    """Paper and study; of a ledger without claims by its place, ``PAPER/results/STUDY/.../``, if it is there."""
    if "paper" in tree:
        return tree["paper"], next(iter(tree["studies"]), "")
    if "results" not in path.parts:
        return "", ""
    at = len(path.parts) - 1 - path.parts[::-1].index("results")
    return path.parts[at - 1], path.parts[at + 1]


def judged_again(tree: Tree, folder: Path) -> Ledger:
    """The ledger of a ``ledger.json``, judged by today's claims on the values that it and its folder keep."""
    name, dataset, studies = tree["paper"], tree["dataset"], tuple(tree["studies"])
    report = report_in(tree, dataset)
    records = report.records
    first = paper(name).studies.get(studies[0]) if studies else None
    if first is not None and first.judged:
        judgements = first.judge(tree, folder)
    elif studies:
        judgements = JudgedStudy(name, studies, dataset).judgements(records)
    else:
        judgements = judge(paper_claims(name), records, dataset)
    return Ledger(paper_claims(name), dataset, judgements, report, studies)


def rewrite(root: Path = ROOT) -> list[Path]:
    """Judge what the ledgers keep by today's claims, and write verdicts and tables anew; the files that changed."""
    changed = []
    for path in ledgers(root):
        tree, markdown = read(path), path.with_suffix(".md")
        if "claims" not in tree:
            continue
        said = markdown.read_text("utf-8")
        as_written = tree["page"] == page_digest(said)
        ledger = judged_again(tree, path.parent)
        more = {
            "schema": SCHEMA,
            "measurements": with_means(tree["measurements"]),
            "claims": ledger.claim_rows(),
            "verdicts": ledger.counts(),
            "scaled": ledger.scaled,
        }
        said = _with_verdicts(said, ledger.verdicts_in_markdown())
        for heading, table in ledger.sections().items():
            said = _with_section(said, heading, table)
        line = f"- {SCALED}{ledger.scaled}\n" if ledger.scaled else ""
        said = re.sub(rf"^- {SCALED}.*\n", line, said, flags=re.MULTILINE)
        if as_written:
            more["page"] = page_digest(said)
        text = json_text({**tree, **more})
        changed += [p for p, new in ((path, text), (markdown, said)) if _written(p, new)]
    for page in pages(root):
        if _written(page, with_tables(page.read_text("utf-8"), page.parent)):
            changed.append(page)
    return changed


def _written(path: Path, text: str) -> bool:
    if path.read_text("utf-8") == text:
        return False
    write_bytes(path, text.encode())
    return True


def _with_verdicts(text: str, verdicts: str) -> str:
    """A ``ledger.md`` with other verdicts: from its counts to the next heading that is not about them."""
    start = re.search(r"^holds: \d+, .*$", text, re.MULTILINE)
    if start is None:
        raise ValueError(
            "a ledger.md must have a line that counts its verdicts; got none. Run the study again."
        )
    rest = text[start.start() :]
    ends = [one.start() for one in re.finditer(r"^## .*$", rest, re.MULTILINE) if one.group() != BESIDE]
    after = rest[ends[0] :] if ends else ""
    return text[: start.start()] + verdicts + ("\n\n" + after if after else "\n")


def _with_section(text: str, heading: str, table: str) -> str:
    """A ``ledger.md`` with another table below a heading; the same where it has no such heading."""
    before, found, rest = text.partition(f"{heading}\n\n")
    _, gap, after = rest.partition("\n\n")
    return before + found + table + (gap or "\n") + after if found else text


def read(path: Path) -> Tree:
    """A ``ledger.json`` as plain values."""
    tree: Tree = decode(json.loads(path.read_text("utf-8")))
    return tree


def different(again: Any, kept: Any, where: str) -> list[str]:
    """Where two trees of plain values differ by more than rounding.

    >>> different({"mean": 0.1, "p": None}, {"mean": 0.2, "p": None}, "row")
    ['row.mean is 0.2 and its values give 0.1']
    """
    if isinstance(again, Mapping) and isinstance(kept, Mapping):
        keys = dict.fromkeys([*again, *kept])
        return [
            line
            for key in keys
            for line in different(again.get(key, "nothing"), kept.get(key, "nothing"), f"{where}.{key}")
        ]
    if isinstance(again, list | tuple) and isinstance(kept, list | tuple) and len(again) == len(kept):
        pairs = enumerate(zip(again, kept, strict=True))
        return [line for place, (a, b) in pairs for line in different(a, b, f"{where}[{place}]")]
    both = isinstance(again, int | float) and isinstance(kept, int | float)
    if both and math.isnan(again) and math.isnan(kept):
        return []
    if again == kept or (both and math.isclose(again, kept, rel_tol=TOLERANCE, abs_tol=1e-12)):
        return []
    return [f"{where} is {kept!r} and its values give {again!r}"]


def _values(row: Mapping[str, Any]) -> dict[int, float]:
    return {int(seed): value for seed, value in row["values"].items()}


def _recomputed(row: Tree, rows: list[Tree]) -> Tree:
    """A row of a study's table, with what is derived from the seeds' values derived again."""
    own, log = _values(row), row["unit"] != "fraction"
    quantity = ("label", "audit", "name", "context")
    others = {r["method"]: _values(r) for r in rows if all(r[key] == row[key] for key in quantity)}
    baselines = dict.fromkeys(name for r in rows for name in r["against"])
    against = {
        name: asdict(compare_seeds(own, others[name], better=row["better"], log=log))
        for name in baselines
        if name != row["method"] and own and others.get(name)
    }
    over = asdict(summarise(own)) if own else None
    return {**row, "over_seeds": over, "against": against}


# Tables in a page, between two comments, generated from the ledgers.

TABLE = re.compile(
    r"(<!-- (?P<kind>verdicts|rows) of\s(?P<what>[^>]*?) -->\n)(?P<table>.*?)(<!-- end of (?P=kind) -->)",
    re.DOTALL,
)


def with_tables(text: str, folder: Path) -> str:
    """A page with its tables as the ledgers have them.

    A table of verdicts begins with ``<!-- verdicts of COLUMN = RESULTS/FOLDER, ...: CLAIM, ... -->`` and ends with
    ``<!-- end of verdicts -->``; a column may name several folders with ``+`` between them. A table of numbers, from
    ``<!-- rows of LEDGER; ...: ROW; ...: COLUMN; ... -->`` to ``<!-- end of rows -->``, has cells of the
    first tables in these ``ledger.md``, one of each.
    """
    make = {"verdicts": _verdicts, "rows": _rows}
    return TABLE.sub(
        lambda found: f"{found[1]}{make[found['kind']](found['what'], folder)}\n{found[5]}", text
    )


def _rows(what: str, folder: Path) -> str:
    files, rows, columns = ([one.strip() for one in part.split(";")] for part in what.split(":"))
    tables = [_first_table((folder / name).read_text("utf-8")) for name in files]
    cells = [[_beside([one[row][column] for one in tables]) for column in columns] for row in rows]
    return markdown_table([["", *columns], *([row, *own] for row, own in zip(rows, cells, strict=True))])


def _beside(cells: list[str]) -> str:
    """Cells of several tables as one, with a common unit once.

    >>> _beside(["2.3 %", "1.3 %"]), _beside(["6.5e+06 nats", "0.1 nats"]), _beside(["∞", "0.1 nats"])
    ('2.3 / 1.3 %', '6.5e+06 / 0.1 nats', '∞ / 0.1 nats')
    """
    units = {re.sub(rf"^{NUMBER}(e[+-]\d+)?", "", cell) for cell in cells}
    if len(units) == 1:
        (unit,) = units
        cells = [*(cell.removesuffix(unit) for cell in cells[:-1]), cells[-1]]
    return " / ".join(cells)


def _first_table(text: str) -> dict[str, dict[str, str]]:
    """Cells of the first table, by row and column, without emphasis."""
    (table,) = re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)[:1]
    title, _, *rows = ([cell.strip(" *") for cell in line.split("|")[1:-1]] for line in table.splitlines())
    return {row[0]: dict(zip(title[1:], row[1:], strict=True)) for row in rows}


def _verdicts(what: str, folder: Path) -> str:
    columns, _, claims = what.partition(":")
    named = dict(part.strip().split(" = ") for part in columns.split(","))
    judged = {
        title: {
            row["id"]: row for one in places.split("+") for row in _run_rows(folder / "results" / one.strip())
        }
        for title, places in named.items()
    }
    words = {claim.id: claim.words for claim in paper_claims(folder.name).claims}
    lines = [["claim", *named]]
    for claim in (part.strip() for part in claims.split(",")):
        cells = [_cell(found.get(claim)) for found in judged.values()]
        lines.append([f"{claim}: {words[claim]}", *cells])
    return markdown_table(lines)


def _run_rows(folder: Path) -> list[Tree]:
    rows: list[Tree] = read(folder / "ledger.json")["claims"]
    return [row for row in rows if row["verdict"] != "not run"]


def _cell(row: Tree | None) -> str:
    if row is None:
        return "not run"
    if row["verdict"] == "not comparable":
        return f"ordering here: **{row['ordering']}**"
    scaled = ", scaled" if row.get("scaled") else ""
    return f"**{row['verdict']}**{scaled}" + (
        f"; ordering here: **{row['ordering']}**" if row["ordering"] else ""
    )


# Numbers in a page's sentences, checked against the files that a comment after them names.

NUMBER = r"\d[\d,]*(?:\.\d+)?"
SOURCE = re.compile(
    r"<!-- numbers from (?P<files>[^;>]*?) \[(?P<digest>\w*)\](?:; others: (?P<others>[^>]*?))? -->",
    re.DOTALL,
)
IN_PERCENT = re.compile(rf"((?:{NUMBER}(?:\s%)?(?:,?\s(?:and|to|or|against)\s|,\s|\s/\s))*{NUMBER})\s%")
SPREAD = re.compile(rf" ± {NUMBER}|\(−?{NUMBER}[^()]{{0,9}} to −?{NUMBER}[^()]*\)|\(difference[^()]*\)")
DECIMAL = re.compile(r"(?<![\w.,^-])\d+\.\d+(?!\w|\.\d|-\d)")


def unsupported(text: str, folder: Path) -> list[str]:
    """Numbers of a page that none of the files has which the comment after them names, and files that have changed.

    A comment ``<!-- numbers from FILE, ... [DIGEST]; others: NUMBER, ... -->`` is about what stands between it and the
    heading or comment before: percentages and decimals there must be printed in one of the files, as they are or
    rounded, and not as a spread or an end of an interval. Others are named in the comment: settings, the paper's own
    numbers, runs that are no more. The digest is of all numbers in the files and in the sentences: where one has
    changed, the sentences are to be read again; `read_again` writes the new one.
    """
    found = []
    for comment in SOURCE.finditer(text):
        block = _sentences_before(comment)
        files = _listed(comment["files"])
        known = [number for name in files for number in _printed(folder / name)]
        others = {float(one.replace(",", "")) for one in _listed(comment["others"] or "")}
        for number, percent in _numbers_in(block):
            if float(number) not in others and not _is_printed(number, percent, known):
                found.append(f"{number}{' %' if percent else ''} is in none of {' '.join(files)}")
        if _digest(known, block) != comment["digest"]:
            words = " ".join(block.split())[-60:]
            found.append(
                f"numbers in {' '.join(files)} or here changed; read “{words}” again, then --read-again"
            )
    return found


def without_source(text: str) -> list[str]:
    r"""Percentages with a decimal that stand before no comment that names their source, up to the next heading.

    >>> without_source("# A\n4.5 % and 95 %\n<!-- numbers from a.md [] -->\n# B\n3.1 %\n")
    ['3.1 %']
    """
    for comment in reversed(list(SOURCE.finditer(text))):
        start = comment.start() - len(_sentences_before(comment))
        text = text[:start] + text[comment.end() :]
    return re.findall(r"\d+\.\d+ %", _plain(re.sub(r"```.*?```", "", text, flags=re.DOTALL)))


def _sentences_before(comment: re.Match[str]) -> str:
    """What stands between a comment and the heading or comment of sources before it."""
    before = comment.string[: comment.start()]
    last = max((one.end() for one in SOURCE.finditer(before)), default=0)
    return before[max(last, before.rfind("\n#")) :]


def _digest(known: list[tuple[str, bool]], block: str) -> str:
    numbers = re.findall(NUMBER, _plain(block))
    return hashlib.sha256(repr((known, numbers)).encode()).hexdigest()[:8]


def read_again(root: Path = ROOT) -> list[Path]:
    """Write today's digests into the pages, whose sentences somebody has read again; the pages that changed."""

    def renewed(comment: re.Match[str], folder: Path) -> str:
        known = [number for name in _listed(comment["files"]) for number in _printed(folder / name)]
        digest = _digest(known, _sentences_before(comment))
        return comment[0].replace(f"[{comment['digest']}]", f"[{digest}]")

    changed = []
    for page in pages(root):
        text = page.read_text("utf-8")
        if _written(page, SOURCE.sub(partial(renewed, folder=page.parent), text)):
            changed.append(page)
    return changed


def _listed(words: str) -> list[str]:
    return [part for part in re.split(r",\s+|\s+", words.strip()) if part]


def _plain(block: str) -> str:
    """A text without code, links' targets and generated tables."""
    return re.sub(r"`[^`]*`|\]\([^)]*\)", "", TABLE.sub("", block))


def _numbers_in(block: str) -> list[tuple[str, bool]]:
    """Percentages and decimals of a text."""
    plain = _plain(block)
    shares = [one for group in IN_PERCENT.findall(plain) for one in re.findall(NUMBER, group)]
    rest = DECIMAL.findall(IN_PERCENT.sub("", plain))
    return [(one.rstrip(",").replace(",", ""), True) for one in shares] + [(one, False) for one in rest]


def _printed(path: Path) -> list[tuple[str, bool]]:
    """Every number in a file, as it is written there, and whether it is a percentage."""
    text, table = SPREAD.sub("", path.read_text("utf-8")), path.suffix == ".csv"  # shares are fractions there
    numbers = [(one.replace(",", ""), not table) for one in re.findall(rf"({NUMBER})(?= %)", text)]
    if table:
        shares = [f"{100 * float(one):.4f}" for one in re.findall(r"\b0\.\d+", text)]
        numbers += [(one, True) for one in shares]
    return numbers + [(one, False) for one in re.findall(r"\d+\.\d+", text)]


def _is_printed(number: str, percent: bool, known: list[tuple[str, bool]]) -> bool:
    digits = len(number.partition(".")[2])
    for one, share in known:
        if share is not percent:
            continue
        finer = len(one.partition(".")[2]) > digits
        if abs(float(one) - float(number)) <= (0.5 * 10**-digits if finer else 0) + 1e-9:
            return True
    return False
