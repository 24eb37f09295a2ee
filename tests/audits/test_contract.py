"""What every audit must do, whatever its question: one list of cases, see tests/audit_cases.py."""

import contextlib
import dataclasses
import json
import math
from collections.abc import Mapping

import pytest
import torch

import clearance.audits
from audit_cases import AUDITS, broken, classifier, constant_features, train_set
from audit_cases import test_set as held_out_set
from clearance.audits import Audit
from clearance.audits.co_adaptation import PIXEL_HEADS
from clearance.data.stored import StoredImageSet, write_pixels
from clearance.experiments import catalogue
from clearance.experiments.method import Method
from clearance.experiments.recipe import Recipe
from clearance.experiments.sweep import Sweep, parse_sweep
from clearance.records import ExhibitRecord, Record, Report
from clearance.vocabulary import Measurement

UNITS = ("fraction", "ratio", "count", "seconds", "nats", "pixel units", "squared error", "factor",
         "radians", "")  # fmt: skip

pytestmark = pytest.mark.filterwarnings("error")


@pytest.fixture(params=AUDITS)
def case(request):
    return AUDITS[request.param]


@pytest.fixture(scope="module")
def findings():
    """What every audit finds of the ordinary network, measured once."""
    return {name: case(classifier(), train_set(), held_out_set()) for name, case in AUDITS.items()}


def identity(found: Measurement) -> tuple:
    return found.audit, found.name, tuple(sorted(found.context.items()))


def values(findings) -> dict:
    return {identity(m): m.value for m in findings.measurements}


def alike(one, other) -> bool:
    """The same but for float64 rounding: the linear algebra underneath promises no bits from call to call."""
    if dataclasses.is_dataclass(one):
        return type(one) is type(other) and alike(vars_of(one), vars_of(other))
    if isinstance(one, Mapping):
        return one.keys() == other.keys() and all(alike(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(alike, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return one == other or math.isclose(one, other, rel_tol=1e-12)
    return bool(one == other)


def vars_of(item) -> dict:
    return {field.name: getattr(item, field.name) for field in dataclasses.fields(item)}


def test_every_audit_is_on_the_list():
    exported = {getattr(clearance.audits, name) for name in clearance.audits.__all__}
    known = {t for t in exported if isinstance(t, type) and issubclass(t, Audit) and t is not Audit}
    assert {type(case.audit) for case in AUDITS.values()} == known
    assert set(AUDITS) == set(catalogue.AUDITS) == {case.audit.name for case in AUDITS.values()}
    for name, case in AUDITS.items():
        assert catalogue.resolve("audit", name, catalogue.AUDITS) is type(case.audit)


@pytest.mark.parametrize("name", AUDITS)
def test_measurements_say_how_to_read_them(findings, name):
    found = findings[name].measurements
    assert found
    assert len({identity(m) for m in found}) == len(found)
    results = {round(m.value, 12) for m in found if m.unit in ("fraction", "ratio")}
    for m in found:
        assert m.audit == name
        assert m.unit in UNITS
        assert m.n >= 1
        assert (m.better == "neither") == (m.name in AUDITS[name].neither)
        assert math.isfinite(m.value)
        assert (m.low is None) == (m.high is None) == ("interval" not in m.context)
        if m.low is not None:
            assert m.low <= m.value <= m.high
        # settings only: a result in the context would split one quantity into one per model
        numbers = {round(v, 12) for v in m.context.values() if isinstance(v, float)}
        assert not numbers & results


def swept_fields():
    """Every setting that can be swept over."""
    for field in (*dataclasses.fields(Method), *dataclasses.fields(Recipe)):
        with contextlib.suppress(ValueError):
            yield parse_sweep(f"{field.name}=1,2").field


@pytest.mark.parametrize("name", AUDITS)
def test_a_sweep_never_takes_the_place_of_what_tells_two_numbers_apart(findings, name):
    """It says its value in the same context, under a name of its own."""
    swept = {Sweep(field, (1.0, 2.0)).setting for field in swept_fields()}
    assert {"lr", "weight_decay", "train_fraction"} <= swept
    items = [*findings[name].measurements, *findings[name].exhibits]
    assert not swept & {key for one in items for key in one.context}


@pytest.mark.parametrize("name", AUDITS)
def test_findings_can_be_stored_and_read_back(findings, name):
    found = findings[name]
    records = tuple(Record("world", "m", 0, m) for m in found.measurements)
    exhibits = tuple(ExhibitRecord("world", "m", 0, e) for e in found.exhibits)
    report = Report({}, {}, "", "", records, exhibits)
    assert json.loads(report.to_json())["measurements"]
    for record in records:
        text = json.dumps(record.to_json(), allow_nan=False)
        assert Record.from_json(json.loads(text)) == record
    for exhibit in exhibits:
        json.dumps(exhibit.to_json(), allow_nan=False)
        assert exhibit.exhibit.caption.endswith(".")


def test_same_seed_same_numbers(case, findings):
    again = case(classifier(), train_set(), held_out_set())
    assert alike(again, findings[case.audit.name])


def test_sets_that_stay_on_disk_give_the_same_numbers(case, findings, tmp_path, memory_for_images):
    """But for heads on all pixels at once. A subset smaller than the set is in memory, as with real sets."""
    given = [train_set(), held_out_set()]
    memory_for_images(min(some.images.nbytes for some in given) - 1)
    kept = (
        [] if case.audit.name not in ("robustness", "boundary_distance") else [given.pop()]
    )  # attacks all of so few
    for number, some in enumerate(given):
        store = write_pixels(tmp_path / f"{number}.pixels", some.images.numpy())
        kept.insert(number, StoredImageSet(store, some.labels, some.classes, some.name))
    found, inside = values(case(classifier(), *kept)), values(findings[case.audit.name])
    pixels = [name for name in inside if dict(name[2]).get("head") in PIXEL_HEADS]
    assert inside.keys() - found.keys() == set(pixels)
    assert all(math.isclose(found[name], inside[name], rel_tol=1e-5) for name in found)


def test_another_model_shares_settings_not_results(case, findings):
    torch.manual_seed(99)
    other = classifier()
    torch.nn.init.normal_(other.extractor[1].weight)
    found = case(other, train_set(), held_out_set())
    mine = findings[case.audit.name]

    def asked(findings):  # outputs in another order than the classes are measured only where they are found
        return [identity(m) for m in findings.measurements if m.name != "error_in_another_order"]

    assert asked(found) == asked(mine)
    assert values(found) != values(mine)


def test_model_and_random_numbers_are_left_alone(case):
    model = classifier().train()
    model.extractor[1].eval()
    model.head[0].weight.grad = torch.ones_like(model.head[0].weight)
    modes = [part.training for part in model.modules()]
    before = {name: value.clone() for name, value in model.state_dict().items()}
    torch.manual_seed(11)
    state = torch.get_rng_state()
    case(model, train_set(), held_out_set())
    assert torch.equal(torch.get_rng_state(), state)
    assert [part.training for part in model.modules()] == modes
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert torch.equal(model.head[0].weight.grad, torch.ones_like(model.head[0].weight))
    assert all(p.grad is None for p in model.extractor.parameters())
    assert all(p.requires_grad for p in model.parameters())


def test_a_callers_inference_mode_changes_no_number(case, findings):
    name = next(key for key, one in AUDITS.items() if one is case)
    model = classifier()
    with torch.inference_mode():
        found = case(model, train_set(), held_out_set())
    assert alike(values(found), values(findings[name]))


@pytest.mark.parametrize("factor", [50.0, 0.02, 1e-14])
def test_the_unit_of_features_does_not_matter(case, findings, factor):
    scaled = case(classifier(scale=factor), train_set(), held_out_set())
    mine = values(findings[case.audit.name])
    assert values(scaled).keys() == mine.keys()
    for key, value in values(scaled).items():
        if key[1] in ("error", "gap", "diverged_heads", "unfitted_heads"):
            assert value == mine[key], key
        else:
            assert value == pytest.approx(mine[key], rel=1e-5), key


def _sees_no_network(measurement):
    """A head on pixels, or a score that tells unchanged images from noise by their pixels alone."""
    context = measurement.context
    scores = {"small pixels", "pixel steps"} if context.get("negatives") == "noise" else set()
    return context.get("head") in PIXEL_HEADS or context.get("score") in scores


def test_a_model_of_nan_is_measured_as_the_worst(case):
    found = case(broken(), train_set(), held_out_set())
    seen = {m.name for m in found.measurements}
    assert set(case.worst) <= seen
    for m in found.measurements:
        assert not math.isnan(m.value), identity(m)
        assert m.spread is None or math.isfinite(m.spread)
        if m.name in case.worst and not _sees_no_network(m):
            assert m.value == pytest.approx(case.worst[m.name]), identity(m)
    for exhibit in found.exhibits:
        json.dumps(ExhibitRecord("world", "m", 0, exhibit).to_json(), allow_nan=False)


def test_a_model_that_sees_all_images_alike_gains_nothing(case):
    """All features in one point are not "classes in points": each measurement must say chance or infinity."""
    found = case(constant_features(), train_set(), held_out_set())
    for m in found.measurements:
        if m.context.get("head") in PIXEL_HEADS:
            continue
        if m.unit == "ratio":
            assert m.value == (0.0 if m.better == "higher" else math.inf), identity(m)
        if m.name == "error":
            assert m.value == pytest.approx(2 / 3), identity(m)
        assert not math.isnan(m.value)


def test_sets_that_do_not_belong_together_are_refused(case):
    from clearance.data import gaussian_images

    with pytest.raises(
        ValueError,
        match=r"same classes in the same order; got 3 and 2: only `train` has 2\. Rename or remove",
    ):
        case(classifier(), train_set(), gaussian_images(class_count=2, shape=(1, 4, 4)))
    with pytest.raises(ValueError, match=r"\(1, 4, 4\).*\(1, 8, 8\)"):
        case(classifier(), train_set(), gaussian_images(class_count=3, shape=(1, 8, 8)))


def test_classes_in_another_order_are_refused(case):
    test = held_out_set()
    with pytest.raises(ValueError, match="same classes in the same order; got 3 and 3: 0, 1, 2 and 2, 1, 0"):
        case(classifier(), train_set(), dataclasses.replace(test, classes=test.classes[::-1]))


def test_tensors_may_be_given_in_place_of_image_sets(case, findings):
    train, test = train_set(), held_out_set()
    found = case(classifier(), (train.images, train.labels), (test.images, test.labels))
    assert alike(values(found), values(findings[case.audit.name]))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_a_model_in_another_precision_is_audited(case, dtype):
    case(classifier().to(dtype), train_set(), held_out_set())


def test_the_default_precision_of_torch_changes_no_number(case, findings):
    """float64 by default: images and the model stay in float32."""
    model, train, test = classifier(), train_set(), held_out_set()
    torch.set_default_dtype(torch.float64)
    try:
        found = case(model, train, test)
    finally:
        torch.set_default_dtype(torch.float32)
    assert alike(values(found), values(findings[case.audit.name]))


@pytest.mark.parametrize("name", ["class_scatter", "low_dimension", "neural_collapse"])
def test_one_image_of_each_class_is_no_collapse(name):
    one = held_out_set().per_class(1, seed=0)
    with pytest.raises(
        ValueError, match=r"`test` must have at least two images of a class.*leave the audit out"
    ):
        AUDITS[name](classifier(), train_set(), one)


def test_heads_from_one_image_of_each_class_need_one_of_each():
    train = train_set()
    with pytest.raises(ValueError, match=r"`train` must have an image of every class.*got none of 2"):
        AUDITS["geodesic"](
            classifier(), train.subset((train.labels != 2).nonzero().flatten()), held_out_set()
        )
