"""Kept features are those of the same extractor and images, and nothing else is taken for them."""

import os
import stat

import pytest
import torch
from torch import nn

from clearance.data import gaussian_images
from clearance.experiments.feature_cache import FeatureCache
from clearance.models import Classifier, extract_features


def net(seed=0):
    torch.manual_seed(seed)
    return Classifier(
        nn.Sequential(nn.Flatten(), nn.Linear(64, 5), nn.BatchNorm1d(5)), nn.Linear(5, 3), 0.1, 0.5
    )


@pytest.fixture
def cache(tmp_path):
    return FeatureCache(tmp_path / "kept")


def files(cache):
    return sorted(cache.folder.glob("*"))


def test_the_second_time_only_a_few_images_are_extracted(cache):
    model, data = net(), gaussian_images()
    expected = extract_features(model, data)
    extracted = []
    model.extractor.register_forward_hook(lambda _, given, __: extracted.append(len(given[0])))
    assert torch.equal(cache.features(model, data), expected)
    assert sum(extracted) == len(data)
    extracted.clear()
    assert torch.equal(cache.features(model, data), expected)
    with torch.no_grad():
        model.head.weight.zero_()  # the head has no part in features
    assert torch.equal(cache.features(model, data), expected)
    assert 0 < sum(extracted) <= 8


def changed_weight(model):
    model.extractor[1].weight.data[0, 0] += 1e-3


def changed_statistics(model):
    model.extractor[2].running_mean += 0.1


def changed_form(model):
    model.extractor.append(nn.Identity())


def changed_mean(model):
    model.mean += 0.1


@pytest.mark.parametrize("change", [changed_weight, changed_statistics, changed_form, changed_mean])
def test_whatever_changes_features_changes_the_key(cache, change):
    model, data = net(), gaussian_images()
    cache.features(model, data)
    change(model)
    assert torch.equal(cache.features(model, data), extract_features(model, data))
    assert len(files(cache)) == 2


def test_an_extractor_that_holds_complex_numbers_is_asked_each_time(cache):
    model, data = net(), gaussian_images()
    model.extractor.turns = torch.polar(torch.ones(3), torch.arange(3.0))
    assert torch.equal(cache.features(model, data), extract_features(model, data))
    assert not cache.folder.exists()


def test_other_images_are_others(cache):
    model = net()
    for seed in range(2):
        data = gaussian_images(seed=seed)
        assert torch.equal(cache.features(model, data), extract_features(model, data))
    assert len(files(cache)) == 2


class Code(nn.Module):
    """Two forward passes that no look at weights and attributes can tell apart."""

    factor = 1.0

    def forward(self, x):
        return x.flatten(1) * Code.factor


def test_code_that_computes_something_else_is_found_out(cache, monkeypatch):
    model, data = Classifier(Code(), nn.Linear(64, 3)), gaussian_images()
    before = cache.features(model, data)
    key = cache.key(model, data)
    monkeypatch.setattr(Code, "factor", 2.0)
    if cache.key(model, data) != key:
        pytest.skip("the key sees it already")
    assert torch.equal(cache.features(model, data), 2 * before)


def test_a_damaged_file_is_made_again(cache):
    model, data = net(), gaussian_images()
    expected = cache.features(model, data)
    (file,) = files(cache)
    file.write_bytes(file.read_bytes()[:-9])
    assert torch.equal(cache.features(model, data), expected)


@pytest.mark.parametrize("broken", ["full", "a file in the way"])
def test_a_cache_that_cannot_be_written_does_not_matter(cache, monkeypatch, broken, tmp_path):
    model, data = net(), gaussian_images()

    def full(descriptor):
        raise OSError(28, "No space left on device")

    if broken == "full":
        monkeypatch.setattr(os, "fsync", full)
    else:
        (tmp_path / "file").write_text("")
        cache = FeatureCache(tmp_path / "file" / "cache")
    assert torch.equal(cache.features(model, data), extract_features(model, data))
    assert not cache.folder.exists() or not list(cache.folder.iterdir())


@pytest.mark.parametrize("where", [0.3, 0.5, 0.999])
def test_one_flipped_bit_is_found_wherever_it_is(cache, where):
    """Also in the features of images that are not computed again."""
    model, data = net(), gaussian_images()
    expected = cache.features(model, data)
    (file,) = files(cache)
    content = bytearray(file.read_bytes())
    content[int(where * len(content))] ^= 4
    file.write_bytes(content)
    assert torch.equal(cache.features(model, data), expected)
    assert stat.S_IMODE(cache.folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
