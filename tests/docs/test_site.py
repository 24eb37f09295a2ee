"""The site is built without a warning, leads somewhere wherever it links, and loads nothing from a network."""

import subprocess
import sys
import zlib
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest

from test_public_names import PUBLIC, ROOMS

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.slow


class Page(HTMLParser):
    """What a page links to, what it loads, and what can be linked to in it."""

    def __init__(self, path):
        super().__init__()
        self.links, self.loaded, self.places = [], [], {""}
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag, attrs):
        known = dict(attrs)
        self.places |= {known[key] for key in ("id", "name") if known.get(key)}
        if tag == "a" and known.get("href"):
            self.links.append(known["href"])
        elif tag in {"link", "img", "script", "iframe", "source"}:
            self.loaded += [known[key] for key in ("href", "src") if known.get(key)]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site, with its tutorials as text: that they run is asked in test_tutorials."""
    pytest.importorskip("myst_nb", reason="the site was not built: pip install -e '.[docs]'")
    pytest.importorskip("furo", reason="the site was not built: pip install -e '.[docs]'")
    out = tmp_path_factory.mktemp("site")
    line = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-D", "nb_execution_mode=off"]
    line += ["-d", str(tmp_path_factory.mktemp("doctrees")), "-c", "docs/site", ".", str(out)]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not done.stderr.strip()
    return out, {path: Page(path) for path in sorted(out.rglob("*.html"))}


def local(target):
    return target and target.partition(":")[0] not in {"http", "https", "mailto", "data"}


def test_every_link_leads_somewhere(site):
    _, pages = site
    lost = []
    for path, page in pages.items():
        for target in filter(local, page.links + page.loaded):
            file, anchor = urldefrag(target.partition("?")[0] if "#" not in target else target)
            there = (path.parent / unquote(file.partition("?")[0])).resolve() if file else path
            known = pages[there].places if there in pages else {""}
            if not there.exists() or (there in pages and unquote(anchor) not in known):
                lost.append((path.name, target))
    assert lost == []


def test_nothing_is_loaded_from_a_network(site):
    out, pages = site
    assert [target for page in pages.values() for target in page.loaded if not local(target)] == []
    styles = [path for path in out.rglob("*.css") if "url(http" in path.read_text("utf-8")]
    assert styles == []


def test_the_home_page_leads_to_every_page_of_a_group(site):
    """The sidebar has them; papers' ledgers are one click further."""
    out, pages = site
    home = pages[out / "README.html"]
    led = {(out / urldefrag(target)[0]).resolve() for target in filter(local, home.links)}
    written = {path for path in pages if path.parts[-2] in {"docs", "tutorials", "benchmarks"}}
    assert written
    assert written <= led
    for paper in out.glob("papers/*/README.html"):
        further = {(paper.parent / urldefrag(t)[0]).resolve() for t in filter(local, pages[paper].links)}
        assert {path for path in pages if paper.parent in path.parents and path != paper} <= further


def test_every_public_name_has_an_entry(site):
    """The inventory of names, as other projects' documentation reads it."""
    out, _ = site
    names = zlib.decompress((out / "objects.inv").read_bytes().split(b"\n", 4)[4]).decode().split("\n")
    entries = {line.split(" ")[0] for line in names if line}
    at_the_top = {f"clearance.{name}" for name in PUBLIC}
    in_rooms = {f"clearance.{room}.{name}" for room, listed in ROOMS.items() for name in listed.split()}
    twice = {each for each in in_rooms if f"clearance.{each.rsplit('.', 1)[1]}" in at_the_top}
    assert (
        sorted(((at_the_top | in_rooms) - twice - {"clearance.fit"} | {"clearance.training.fit"}) - entries)
        == []
    )
    private = {each for each in entries if each.rsplit(".", 1)[-1].startswith("_")}
    assert private == set()


def test_a_name_links_to_its_source(site):
    out, pages = site
    (page,) = [page for path, page in pages.items() if path == out / "docs" / "api" / "losses.html"]
    assert any("_modules/clearance/losses/center.html" in target for target in page.links)


def test_the_folder_opens_at_the_home_page(site):
    out, _ = site
    assert 'url=README.html"' in (out / "index.html").read_text("utf-8")
