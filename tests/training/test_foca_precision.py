"""How the extractor runs during steps: in mixed precision, or compiled."""

import shutil
from functools import partial

import pytest
import torch
from torch import nn

from clearance.losses import CrossEntropyLoss
from clearance.training import FOCA, EndToEnd, fit


class Watching(CrossEntropyLoss):
    """Notes what reaches the loss."""

    def __init__(self):
        super().__init__()
        self.dtypes = set()

    def forward(self, outputs, labels):
        self.dtypes |= {outputs.features.dtype, outputs.logits.dtype}
        return super().forward(outputs, labels)


def inside(model):
    """The dtypes that the extractor's linear layer gives."""
    dtypes = []
    model.extractor[1].register_forward_hook(lambda module, inputs, output: dtypes.append(output.dtype))
    return dtypes


def test_heads_are_trained_in_float32_while_the_extractor_runs_in_bfloat16(data, watched, make_model):
    model, spy, loss = make_model(), watched(), Watching()
    dtypes = inside(model)
    way = FOCA(loss, spy, per_class=2, heads=2, pool=12)
    steps = []
    result = fit(
        model, way, data, epochs=2, batch_size=12, autocast=torch.bfloat16,
        on_step=lambda progress: steps.append(list(dtypes)),
    )  # fmt: skip
    assert set(steps[0]) == {torch.bfloat16}
    assert dtypes[-1] == torch.float32  # finish and evaluation
    assert loss.dtypes == {torch.float32}
    for features, _, trained in spy.calls:
        assert features.dtype == torch.float32
        assert {value.dtype for value in trained.stack.parameters.values()} == {torch.float32}
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    assert result.status.step == 4


def test_the_callers_own_autocast_does_not_reach_the_training_of_heads(data, watched, make_model, sgd):
    made = []
    for autocast in (False, True):
        model, spy = make_model(), watched()
        with torch.no_grad():
            model.extractor[1].weight.zero_()  # features are the biases, which bfloat16 holds exactly
            model.extractor[1].bias.copy_(torch.tensor([1.0, 2, 4, 0.5, 0.25, 8]))
        way = FOCA(weak_heads=spy, per_class=2)
        training = way.start(model, data, sgd(way, model), way.generators(0))
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
            training.step(data.images, data.labels)
        assert spy.calls[0][0].dtype == torch.float32
        made.append(spy.calls[0][2].stack.parameters)
    assert all(torch.equal(made[0][name], made[1][name]) for name in made[0])


@pytest.mark.parametrize("way", [EndToEnd, partial(FOCA, per_class=2)])
def test_mixed_precision_is_close_to_full_precision_and_not_the_same(data, make_model, weights, way):
    moved = []
    for autocast in (None, torch.bfloat16):
        model = make_model()
        fit(model, way(), data, epochs=1, batch_size=12, autocast=autocast)
        moved.append(weights(model)["extractor.1.weight"])
    start = weights(make_model())["extractor.1.weight"]
    difference, distance = (moved[0] - moved[1]).norm(), (moved[0] - start).norm()
    assert 0 < float(difference) < 0.3 * float(distance)


@pytest.mark.parametrize("wrong", [torch.float16, torch.float32, torch.float64])
def test_other_precisions_are_refused(data, make_model, wrong):
    with pytest.raises(ValueError, match=f"`autocast` must be torch.bfloat16 or None; got {wrong}"):
        fit(make_model(), EndToEnd(), data, epochs=1, autocast=wrong)


def test_precision_is_part_of_a_runs_fingerprint(data, make_model, tmp_path):
    train = partial(fit, way=EndToEnd(), train=data, epochs=1, run_dir=tmp_path / "run")
    train(make_model())
    with pytest.raises(ValueError, match="autocast"):
        train(make_model(), autocast=torch.bfloat16)


def test_a_compiled_extractor_gives_the_same_training(data, make_model, weights, monkeypatch):
    graphs = []

    def backend(graph, example):
        del example
        graphs.append(graph)
        return graph.forward

    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=backend))
    trained = []
    for compiled in (False, True):
        model = make_model(nn.BatchNorm1d(6), nn.ReLU())
        way = FOCA(per_class=2, heads=2, reuse=2)
        fit(model, way, data, epochs=2, batch_size=12, compile_extractor=compiled)
        assert "forward" not in vars(model.extractor)
        trained.append(weights(model))
        assert bool(graphs) == compiled
    for name, value in trained[0].items():
        torch.testing.assert_close(trained[1][name], value)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # the compiler's own imports warn of torch's
def test_torchs_own_compiler_gives_the_same_training(data, make_model, weights):
    if shutil.which("g++") is None and shutil.which("clang++") is None:
        pytest.skip("no compiler: torch.compile needs g++ or clang++ on the path")
    trained = []
    for compiled in (False, True):
        model = make_model(nn.ReLU())
        fit(model, FOCA(per_class=2), data, epochs=1, batch_size=12, compile_extractor=compiled)
        trained.append(weights(model))
    for name, value in trained[0].items():
        torch.testing.assert_close(trained[1][name], value, rtol=1e-3, atol=1e-4)


def test_a_compiled_extractor_shows_no_activations(data, make_model):
    class Reader(CrossEntropyLoss):
        layers = ("extractor.1",)

    with pytest.raises(ValueError, match=r"`compile_extractor` must be False with Reader.*extractor\.1"):
        fit(make_model(), EndToEnd(Reader()), data, epochs=1, compile_extractor=True)


@pytest.mark.parametrize("had", [False, True])
def test_the_extractor_is_as_before_even_where_a_step_fails(data, make_model, had):
    model = make_model()
    own = model.extractor.forward
    if had:
        model.extractor.forward = own
    dtypes = []

    class Failing(CrossEntropyLoss):
        def forward(self, outputs, labels):
            dtypes.append(model.extractor[:2](data.images).dtype)
            assert vars(model.extractor).get("forward") is not own
            raise RuntimeError("no step")

    with pytest.raises(RuntimeError, match="no step"):
        fit(model, EndToEnd(Failing()), data, epochs=1, autocast=torch.bfloat16)
    assert len(dtypes) == 1
    assert vars(model.extractor).get("forward") is (own if had else None)
