"""The page as a file: whole, offline, as small as promised, and safe whatever classes are called."""

import base64
import gzip
import json
import re
from importlib import resources
from unittest import mock

import numpy as np
import pytest

from clearance.experiments.explore import explored_dataset
from clearance.explore import page as pages
from clearance.explore import scene_of, write_explorer
from clearance.explore.machines import all_machines
from clearance.explore.page import (
    ALL_LIMIT,
    OWN,
    PAIR_LIMIT,
    check_size,
    packed,
    packed_classes,
    render_explorer,
    size_limit,
)


def noise(classes, per_class, width, seed=0):
    """Images of noise, which no compression makes smaller."""
    values = np.random.default_rng(seed).integers(0, 256, (classes * per_class, width)) / 255
    labels = np.arange(len(values)) % classes
    return scene_of(
        (values, labels), (values[:0], labels[:0]), [f"c{k}" for k in range(classes)], shape=(1, 1, width)
    )


def blob(page, name):
    (text,) = re.findall(rf'id="{name}">([^<]*)<', page)
    return gzip.decompress(base64.b64decode(text))


def test_the_page_holds_the_very_samples_and_machines(digits):
    page = digits.path.read_text(encoding="utf-8")
    (one,), (first, second) = digits.machines, digits.scene.classes
    assert blob(page, "class-0") == first.train.tobytes() + first.test.tobytes()
    assert blob(page, "class-1") == second.train.tobytes() + second.test.tobytes()
    assert blob(page, "pair-0") == one.directions.astype("<f4").tobytes()
    facts = json.loads(re.findall(r'id="scene">(.*?)</script>', page)[0])
    assert facts["pairs"][0]["offsets"] == one.offsets.tolist()
    assert facts["space"] == {"width": 64, "shape": [1, 8, 8], "low": 0.0, "step": 1 / 16}


def test_the_page_needs_nothing_beside_itself(digits):
    page = digits.path.read_text(encoding="utf-8")
    assert re.findall(r"""(?:src|href)=["'](?!#)[^"']*""", page) == []
    assert re.findall(r"https?://(?!www\.w3\.org/2000/svg)", page) == []
    assert "@import" not in page
    assert "url(#" in page  # only parts of the page itself
    assert re.findall(r"url\((?!#)", page) == []


def test_the_same_scene_gives_the_same_page(digits):
    again = render_explorer(digits.scene, digits.machines)
    assert again == digits.path.read_text(encoding="utf-8")


def scripts():
    """Every file of scripts, by its name."""
    folder = resources.files("clearance.explore") / "scripts"
    return {path.name: path.read_text("utf-8") for path in folder.iterdir()}


def test_every_script_is_on_the_page_once(digits):
    page = digits.path.read_text(encoding="utf-8")
    assert {name: page.count(text.strip()) for name, text in scripts().items()} == dict.fromkeys(scripts(), 1)


def test_no_two_scripts_use_one_name():
    text = "\n".join(scripts().values())
    names = re.findall(r"^(?:async )?function (\w+)|^(?:const|let) (\w+)", text, re.MULTILINE)
    flat = [one or other for one, other in names]
    assert len(flat) > 80
    assert len(flat) == len(set(flat))


def test_names_cannot_leave_their_place():
    bad = ("</script><b>x", '"><img src=y>')
    images, labels = np.eye(4), np.array([0, 0, 1, 1])
    page = render_explorer(scene_of((images, labels), (images, labels), bad, name="<i>", shape=(1, 2, 2)))
    assert "</script><b>" not in page
    assert "<img" not in page
    assert "<i>" not in page
    assert json.loads(re.findall(r'id="scene">(.*?)</script>', page)[0])["classes"][0]["name"] == bad[0]


def test_a_page_that_would_be_too_large_says_how_many_samples_fit():
    scene = noise(2, 4000, 1000)
    assert size_limit(scene) == PAIR_LIMIT
    with pytest.raises(ValueError, match=r"would have 11\.\d MB .* at most 8 MB .*--per-class") as refused:
        check_size(scene, packed_classes(scene))
    fitting = int(str(refused.value).split("--per-class ")[1].split(")")[0])
    small = noise(2, fitting, 1000)
    check_size(small, packed_classes(small))
    larger = noise(2, int(1.15 * fitting), 1000)
    with pytest.raises(ValueError, match="--per-class"):
        check_size(larger, packed_classes(larger))


def test_too_many_pairs_are_refused_before_anything_is_fitted(tmp_path):
    scene = noise(30, 2, 400)
    assert size_limit(scene) == ALL_LIMIT
    with (
        mock.patch.object(pages, "all_machines") as fitted,
        pytest.raises(ValueError, match=r"435 pairs of classes.*name two classes"),
    ):
        write_explorer(scene, tmp_path / "page.html")
    fitted.assert_not_called()
    assert list(tmp_path.iterdir()) == []


def test_what_is_told_beforehand_is_what_the_page_will_have():
    """Many pairs of narrow samples: most of the page is their numbers as decimals, not their weights."""
    scene = noise(12, 3, 8)
    page = len(render_explorer(scene).encode())
    numbers = 66 * 3 * 81 * 15
    assert numbers < page < ALL_LIMIT
    with (
        mock.patch.object(pages, "ALL_LIMIT", int(0.9 * page)),
        pytest.raises(ValueError, match=r"66 pairs of classes"),
    ):
        check_size(scene, packed_classes(scene))


@pytest.mark.long
def test_all_pairs_of_mnist_would_fit(data_root, mnist):
    """All images as they are packed, and 45 times what the machines of 2 and 3 need."""
    scene = explored_dataset("mnist", ("all",), root=data_root)
    classes = packed_classes(scene)
    check_size(scene, classes)
    machines = len(packed(mnist.machines[0].directions))
    assert sum(map(len, classes)) + 45 * machines + OWN < ALL_LIMIT


def test_progress_is_told_before_each_pair(tmp_path):
    events = []
    scene = noise(3, 4, 6)
    machines = all_machines(scene, lambda *words: events.append(words))
    write_explorer(scene, tmp_path / "deep" / "page.html", machines)
    assert events == [(0, 3, "c0 against c1"), (1, 3, "c0 against c2"), (2, 3, "c1 against c2")]
    assert (tmp_path / "deep" / "page.html").stat().st_size < 300_000
