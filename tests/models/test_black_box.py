"""What only answers: scripted and quantised modules, functions; and what an audit makes of it."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

import clearance as cl
from clearance.audits import Audit, Findings
from clearance.data import gaussian_images
from clearance.models import black_box
from clearance.models.black_box import lacks
from cli.terminal import run
from models.library_shapes import Distilled

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*torch.jit:FutureWarning"),
]


def linear(classes=3):
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, classes))


@pytest.fixture(scope="module")
def sets():
    return gaussian_images(seed=0), gaussian_images(seed=1)


def as_numpy(module):
    """As a service answers: no graph, no torch."""
    return lambda images: module(images).detach().numpy()


@pytest.mark.parametrize(
    ("made", "lacking"),
    [
        (lambda module: module, ("features",)),
        (torch.jit.script, ("features",)),
        (as_numpy, ("features", "gradients")),
        (lambda module: lambda images: module(images).tolist(), ("features", "gradients")),
        (lambda module: lambda images: {"logits": module(images)}, ("features",)),
        (lambda module: lambda images: list(module(images)), ("features",)),
    ],
    ids=["module", "scripted", "NumPy", "lists", "dictionary", "list of tensors"],
)
def test_the_logits_are_those_of_the_call(made, lacking, sets, capsys):
    module = linear().eval()
    images = sets[1].images[:8]
    model = black_box(made(module), example=images, mean=0.5, std=0.25)
    assert capsys.readouterr().out == (
        f"black box: 3 classes; it gives {' and '.join(f'no {word}' for word in lacking)}\n"
    )
    assert lacks(model) == lacking
    torch.testing.assert_close(model(images), module((images - 0.5) / 0.25), rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore")  # torch's, that this way of quantising is old
def test_a_quantised_module_gives_no_gradients(sets):
    module = torch.ao.quantization.quantize_dynamic(linear(), {nn.Linear})
    model = black_box(module, example=sets[1].images[:4], verbose=False)
    assert lacks(model) == ("features", "gradients")
    assert lacks(cl.Classifier(*linear())) == ()


def test_two_classes_and_probabilities(sets, capsys):
    images, one = sets[1].images[:8], linear(1)
    model = black_box(lambda x: one(x)[:, 0], example=images, verbose=False)
    torch.testing.assert_close(model(images).softmax(dim=1)[:, 1], one(images).sigmoid()[:, 0])
    module = linear()
    model = black_box(lambda x: module(x).softmax(dim=1), example=images)
    assert "3 classes, the logarithm of its probabilities" in capsys.readouterr().out
    torch.testing.assert_close(model(images).softmax(dim=1), module(images).softmax(dim=1))


@pytest.mark.parametrize("count", [1, 4])
def test_what_looks_like_a_sigmoid_is_said(count, sets):
    images, module = sets[1].images[:8], linear(count)
    with pytest.warns(
        UserWarning, match=r"as those of a sigmoid, and are taken for logits.*torch\.logit\(p\)"
    ):
        model = black_box(lambda x: module(x).sigmoid(), example=images, verbose=False)
    assert not model.extractor.probabilities
    with pytest.warns(UserWarning, match="as those of a sigmoid"):
        model = black_box(lambda x: torch.full((len(x), 1), 0.99), example=images, verbose=False)
    assert not model.extractor.probabilities


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (None, r"`call` must be a module or a function of images; got NoneType"),
        (lambda images: images / None, r"`call` must take the example .* fails with TypeError"),
        (lambda images: images, r"must give logits of shape \(B, K\); got \(4, 1, 8, 8\) for 4 images"),
        (lambda images: images[:2].flatten(1), r"got \(2, 64\) for 4 images"),
        (lambda images: images.flatten(1) / 0, "must give finite logits"),
        (lambda images: "cat", "must give logits: a tensor, an array or lists of numbers.*got str"),
        (
            lambda images: [{"boxes": [0.0]} for _ in images],
            r"must give logits: .*got list of dict\. Give a function",
        ),
        (lambda images: images.flatten(1).argmax(1), r"whole numbers \(torch.int64\), as of classes"),
        (
            lambda images: (images.flatten(1), images.flatten(1)[:, :3]),
            r"got several outputs: '0' \(4, 64\), '1' \(4, 3\)",
        ),
    ],
)
def test_what_is_no_black_box_is_refused(call, reason, sets):
    with pytest.raises(ValueError, match=reason):
        black_box(call, example=sets[1].images[:4])


def test_its_audit_has_the_same_numbers_and_names_what_could_not_be_asked(sets, tmp_path):
    train, test = sets
    module = linear()
    model = black_box(as_numpy(module), example=test.images[:4], verbose=False)
    card = cl.audit(model, train=train, test=test)
    cut = cl.wrap(module, example=test.images[:4], verbose=False)
    known = {
        (m.audit, m.name, str(m.context)): m.value for m in cl.audit(cut, train=train, test=test).measurements
    }
    found = {(m.audit, m.name, str(m.context)): m.value for m in card.measurements}
    assert {"accuracy", "calibration", "performance", "mistakes", "confusions"} <= {
        audit for audit, *_ in found
    }
    assert found == pytest.approx({name: known[name] for name in found}, rel=1e-4, nan_ok=True)
    (left,) = card.report.recipe["audits_left_out"]
    assert left == {"audit": "minimal_perturbation", "why": "impossible", "reason": "gradients"}
    page = card.save(tmp_path / "page.html").read_text()
    assert "The model is a black box without features and gradients: only its logits are read" in page
    sentence = "Could not be asked without gradients: smallest change that changes the prediction"
    assert sentence in page
    assert sentence in str(card)
    with pytest.raises(ValueError, match="none of the audits can be asked of a black box: linear_probe"):
        cl.audit(model, train=train, test=test, audits=["linear_probe"])


def test_random_answers_are_warned_of(sets):
    module = nn.Sequential(linear(), nn.Dropout(0.5))
    with pytest.warns(UserWarning, match="gives other logits when it is asked again"):
        black_box(lambda images: module.train()(images), example=sets[1].images[:4], verbose=False)


def test_its_logits_are_not_taken_for_features(sets):
    train, test = sets
    model = black_box(linear(), example=test.images[:4], verbose=False)
    card = cl.audit(
        model,
        train=train,
        test=test,
        unknown=torch.rand(40, 1, 8, 8),
        audits=["accuracy", "churn", "out_of_distribution"],
    )
    left = {one["audit"]: one["reason"] for one in card.report.recipe["audits_left_out"]}
    assert left == {"churn": "features", "out_of_distribution": "features"}


def test_audits_of_ones_own_need_only_logits_unless_they_say_more(sets):
    train, test = sets

    class Widths(Audit):
        name, needs = "widths", ("features",)

        def examine(self, subject):
            raise AssertionError

    class Outputs(Audit):
        name = "outputs"

        def examine(self, subject):
            return Findings((cl.Measurement("outputs", "count", subject.classes, "count", 1),))

    model = black_box(linear(), example=test.images[:4], verbose=False)
    card = cl.audit(model, train=train, test=test, audits=[Widths(), Outputs()])
    assert [m.audit for m in card.measurements] == ["outputs"]


def test_class_names_reorder_it(sets):
    train, test = sets
    module = linear()
    module.classes = tuple(reversed(test.classes))
    model = black_box(module, example=test.images[:4], verbose=False)
    card = cl.audit(model, train=train, test=test, audits=["accuracy"])
    wrong = float((module(test.images).flip(1).argmax(dim=1) != test.labels).double().mean())
    assert card.measurements[0].value == pytest.approx(wrong)


NET = """
import torch
from torch import nn

torch.manual_seed(0)
NET = nn.Sequential(nn.Flatten(), nn.Linear(64, 3))

def service(images):
    return NET(images).tolist()

def scripted():
    return torch.jit.script(NET)
"""


@pytest.mark.parametrize(("name", "lacking"), [("service", "gradients"), ("scripted", "features")])
def test_the_command(name, lacking, sets, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(NET)
    for split, data in zip(("train", "test"), sets, strict=True):
        np.savez(tmp_path / split, images=data.images.numpy(), labels=data.labels.numpy())
    words = ["audit", f"net.py:{name}", "--train", "npz:train.npz", "--test", "npz:test.npz"]
    words += ["--audits", "accuracy,linear_probe,minimal_perturbation", "--images", "6"]
    status, shown, complaint = run(*words, "--black-box")
    assert status == 0, complaint
    assert "black box: 3 classes" in shown
    assert f"Could not be asked without {lacking}: " in shown
    status, _, complaint = run(*words)
    assert status == 2
    assert "--black-box" in complaint


def test_what_is_cut_by_nothing_is_still_answered(sets):
    class Most(Distilled):
        def forward(self, x):
            x = self.body(x.flatten(1))
            return torch.maximum(self.head(x), self.head_dist(x.tanh()))

    images = torch.rand(4, 3, 8, 8)
    module = Most().eval()
    assert torch.equal(black_box(module, example=images, verbose=False)(images), module(images))


@pytest.mark.parametrize("rounded", [lambda p: p.round(decimals=2), lambda p: p.bfloat16().float()])
def test_rounded_probabilities_are_probabilities(rounded):
    torch.manual_seed(0)
    images, weight = torch.rand(64, 1, 4, 4), torch.randn(16, 5)
    exact = (images.flatten(1) @ weight).softmax(dim=1)
    model = black_box(
        lambda x: rounded((x.flatten(1) @ weight).softmax(dim=1)), example=images[:8], verbose=False
    )
    torch.testing.assert_close(model(images).softmax(dim=1), exact, atol=0.02, rtol=0)


def test_logits_beside_others_are_not_taken_for_rows(sets):
    """Two outputs of two images: a list as long as the batch."""
    module, images = linear().eval(), sets[1].images[:2]
    model = black_box(lambda given: [module(given), 0 * module(given)], example=images)
    torch.testing.assert_close(model(images), module(images))


def test_maps_beside_logits_are_passed_over(sets):
    module, images = linear().eval(), sets[1].images[:4]
    model = black_box(lambda given: (given, module(given)), example=images, verbose=False)
    torch.testing.assert_close(model(images), module(images))


def test_a_fresh_one_can_be_attacked(sets):
    _, test = sets
    box = black_box(linear().eval(), example=test.images[:4], verbose=False)
    found = cl.attacks.FGSM(0.1)(box, test.images[:4], test.labels[:4])
    assert found.images.shape == test.images[:4].shape


@pytest.mark.parametrize(
    "form", [lambda logits: {"logits": logits}, lambda logits: SimpleNamespace(logits=logits)]
)
def test_logits_by_name_may_be_lists_and_arrays(sets, form):
    module, (_, test) = linear().eval(), sets
    for kind in (lambda z: z.tolist(), lambda z: z.detach().numpy()):

        def call(images, kind=kind):
            return form(kind(module(images)))

        box = black_box(call, example=test.images[:4], verbose=False)
        torch.testing.assert_close(box(test.images[:4]), module(test.images[:4]))


def test_logits_by_name_are_those_where_features_stand_beside_them(sets):
    module, images = linear().eval(), sets[1].images[:4]

    def call(given):
        return {"logits": module(given).detach().numpy(), "features": given.flatten(1)}

    box = black_box(call, example=images, verbose=False)
    torch.testing.assert_close(box(images), module(images))
