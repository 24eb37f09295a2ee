"""The large-margin loss in loops of one's own: frozen layers, compiled networks, attention, masks, wrappers."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint

from clearance.losses import CrossEntropyLoss, DistanceSettings, LargeMarginLoss, margin_distances
from clearance.models import Classifier, wrap
from margin_cases import (  # type: ignore[import-not-found]  # on pytest's path, see pyproject.toml
    images,
    labels,
    smooth_net,
)


class TestSettings:
    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("gamma", 5.0),
            ("norm", math.inf),
            ("score", "softmax"),
            ("layer_weights", 7.0),
            ("distance", DistanceSettings(eps=1.0)),
            ("layers", ("input",)),
            ("every", 2),
        ],
    )
    def test_those_that_parts_were_made_from_cannot_change(self, name, value):
        """They had shown in the repr, and done nothing."""
        loss = LargeMarginLoss(("input", "logits"))
        with pytest.raises(
            AttributeError, match=f"`{name}` of LargeMarginLoss cannot be changed once it is made"
        ):
            setattr(loss, name, value)

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("top_k", 3),
            ("aggregate", "sum"),
            ("lower_clip", 1.0),
            ("cross_entropy_weight", 0.5),
            ("shifted", True),
        ],
    )
    def test_others_do_what_they_say(self, name, value):
        settings: Any = {"gamma": 2.0, "top_k": 2, "aggregate": "mean", name: value}
        made = LargeMarginLoss(("logits",), **settings)
        changed = LargeMarginLoss(("logits",), gamma=2.0, top_k=2, aggregate="mean")
        outputs = smooth_net().outputs(images(), ())
        before = changed(outputs, labels()).total
        setattr(changed, name, value)
        assert torch.equal(changed(outputs, labels()).total, made(outputs, labels()).total)
        assert not torch.equal(before, made(outputs, labels()).total)


class TestFrozen:
    def test_the_documented_backward_pass_leaves_frozen_layers_alone(self):
        model, loss = smooth_net(), LargeMarginLoss(("input",))
        frozen = next(iter(model.extractor.parameters())).requires_grad_(requires_grad=False)
        terms = loss(model.outputs(images(), loss.layers), labels())
        terms.total.backward(inputs=[p for p in model.parameters() if p.requires_grad])
        assert frozen.grad is None
        assert all(p.grad is not None for p in model.parameters() if p.requires_grad)

    def test_a_margin_behind_frozen_layers(self):
        """What is refused says what to do, and that works."""
        model = smooth_net()
        model.head = nn.Sequential(model.head, nn.Tanh(), nn.Linear(model.head.out_features, 4).double())
        model.extractor.requires_grad_(requires_grad=False)
        loss = LargeMarginLoss(("features",))
        with pytest.raises(
            ValueError, match=r"carries no graph.*model\.outputs\(images, \[\*loss\.layers, 'input'\]\)"
        ):
            loss(model.outputs(images(), loss.layers), labels())
        loss(model.outputs(images(), [*loss.layers, "input"]), labels()).total.backward()
        assert all(p.grad is not None for p in model.head.parameters())


class Attentive(nn.Module):
    """Pixels as tokens, with fused attention among them."""

    def __init__(self) -> None:
        super().__init__()
        self.lift = nn.Linear(1, 8)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.lift(x.flatten(1).unsqueeze(2))
        heads = tokens.unsqueeze(1)
        mixed: Tensor = nn.functional.scaled_dot_product_attention(heads, heads, heads).squeeze(1).mean(dim=1)
        return mixed


class TestAttention:
    def model(self) -> Classifier:
        torch.manual_seed(0)
        return Classifier(Attentive(), nn.Linear(8, 4)).eval()

    def loss(self, denominator: Any, sweeps: Any = "sequential") -> Tensor:
        model = self.model()
        loss = LargeMarginLoss(
            ("input",),
            top_k=2,
            distance=DistanceSettings(denominator=denominator, sweeps=sweeps),
            cross_entropy_weight=0.0,
        )
        return loss(model.outputs(torch.rand(5, 1, 4, 4), loss.layers), torch.arange(5) % 4).total

    def test_a_margin_needs_no_second_derivative(self):
        self.loss("detach").backward()

    @pytest.mark.parametrize("sweeps", ["sequential", "batched"])
    def test_differentiating_the_denominator_is_refused_where_the_loss_is_made(self, sweeps):
        with pytest.raises(
            ValueError, match=r"cannot be differentiated twice.*sdpa_kernel\(SDPBackend\.MATH\)"
        ):
            self.loss("full", sweeps)

    def test_and_works_as_it_says(self):
        with sdpa_kernel(SDPBackend.MATH):
            self.loss("full").backward()


@pytest.mark.parametrize(
    ("said", "remedy"),
    [
        (
            "This backward function was compiled with non-empty donated buffers",
            "donated_buffer = False before",
        ),
        (
            "torch.compile with aot_autograd does not currently support double backward",
            "or train without torch.compile",
        ),
    ],
)
def test_what_a_compiled_network_says_at_a_sweep_is_answered(said, remedy):
    class Compiled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, slope):
            raise RuntimeError(said)

    class Last(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            found: Tensor = Compiled.apply(x)
            return found

    model, loss = smooth_net(), LargeMarginLoss(("input",))
    model.extractor.append(Last())
    outputs = model.outputs(images(), loss.layers)
    with pytest.raises(ValueError, match=remedy):
        loss(outputs, labels())


class TestManyClasses:
    def test_no_tensor_of_rivals_by_classes_is_made(self):
        """As many classes as rivals: one such tensor would take most of all memory."""
        model, count = Classifier(nn.Flatten(), nn.Linear(4, 200)), 6
        loss = LargeMarginLoss(("logits",), top_k=None, aggregate="mean")
        sizes: list[int] = []

        class Noted(torch.utils._python_dispatch.TorchDispatchMode):
            def __torch_dispatch__(self, func, types, args=(), kwargs=None):
                made = func(*args, **(kwargs or {}))
                sizes.extend(
                    one.numel()
                    for one in (made if isinstance(made, tuple) else (made,))
                    if isinstance(one, Tensor)
                )
                return made

        with Noted():
            loss(model.outputs(torch.rand(count, 1, 2, 2)), torch.arange(count)).total.backward()
        assert max(sizes) <= 2 * 199 * count


class TestDistances:
    def test_of_a_plain_module(self):
        with pytest.raises(
            TypeError, match=r"`model` must be a clearance Classifier; got Sequential.*clearance\.wrap"
        ):
            margin_distances(nn.Sequential(nn.Flatten(), nn.Linear(64, 4)), images(), labels())  # type: ignore[arg-type]

    @pytest.mark.parametrize(
        ("change", "words"), [(lambda x: 255 * x, "divide by 255"), (lambda x: x - 0.5, "undo")]
    )
    def test_of_images_that_are_not_in_pixel_units(self, change, words):
        with pytest.raises(ValueError, match=rf"`images` must lie in \[0, 1\].*{words}"):
            margin_distances(smooth_net(), change(images()), labels())


class Aliased(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(9, 8)
        self.again = self.first

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.again(x.flatten(1)).tanh()
        return found


class TestLayers:
    def test_one_module_may_have_two_names(self):
        model = Classifier(Aliased(), nn.Linear(8, 4)).double()
        by = {
            name: LargeMarginLoss((name,))(model.outputs(images(), (name,)), labels()).total
            for name in ("extractor.first", "extractor.again")
        }
        assert torch.equal(*by.values())

    @pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
    def test_inside_a_scripted_module(self):
        scripted = torch.jit.script(nn.Sequential(nn.Flatten(), nn.Linear(9, 8)))
        model = Classifier(scripted, nn.Linear(8, 4)).double()
        with pytest.raises(ValueError, match=r"layer 'extractor.1' must not lie in a scripted module"):
            model.outputs(images(), ("extractor.1",))


class Checkpointed(nn.Module):
    def __init__(self, *, kept: bool) -> None:
        super().__init__()
        self.kept = kept
        self.inner = nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten())

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.inner(x) if self.kept else checkpoint(self.inner, x, use_reentrant=False)
        return found


@pytest.mark.parametrize(
    ("kept", "top_k", "moves"), [(True, 1, 1), (True, 2, 1), (False, 1, 3), (False, 2, 4)]
)
def test_under_checkpointing_every_sweep_moves_batch_statistics_once_more(kept, top_k, moves):
    """Torch's own way computes the stage again in every backward pass, statistics and all: documented, not mended."""
    model = Classifier(Checkpointed(kept=kept), nn.Linear(108, 4)).train()
    loss = LargeMarginLoss(("input",), top_k=top_k)
    loss(model.outputs(torch.rand(6, 1, 8, 8), loss.layers), torch.arange(6) % 4).total.backward()
    assert int(model.extractor.inner[1].num_batches_tracked) == moves  # type: ignore[union-attr,index]


@pytest.fixture
def process_group():
    """A group of this process alone, so that torch's wrapper can be made."""
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


def reducing(*, static_graph: bool) -> nn.Module:
    extractor = nn.Sequential(nn.Flatten(), nn.Linear(9, 9)).double()
    return nn.parallel.DistributedDataParallel(extractor, static_graph=static_graph)


@pytest.mark.usefixtures("process_group")
class TestWrappers:
    def test_one_that_counts_backward_passes_is_refused_where_layers_are_asked_for(self):
        model = Classifier(reducing(static_graph=True), nn.Linear(9, 4)).double()
        assert model.outputs(images()).logits.shape == (6, 4)
        with pytest.raises(
            ValueError, match="part 'extractor' is a DistributedDataParallel with static_graph=True"
        ):
            model.outputs(images(), ("input",))
        model = Classifier(reducing(static_graph=False), nn.Linear(9, 4)).double()
        assert model.outputs(images(), ("input",)).logits.shape == (6, 4)

    def test_wrap_says_how_to_train_in_several_processes(self):
        with pytest.raises(
            ValueError, match=r"wrap its `\.module` instead, to audit it\. To train.*averages no gradients"
        ):
            wrap(reducing(static_graph=False), example=torch.rand(2, 1, 3, 3))


def test_cross_entropy_alone_needs_none_of_this():
    model = smooth_net()
    model.extractor.requires_grad_(requires_grad=False)
    CrossEntropyLoss()(model.outputs(images(), ()), labels()).total.backward()
    assert model.head.weight.grad is not None
