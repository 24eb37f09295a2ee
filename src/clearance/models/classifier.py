"""A classifier in two parts, extractor and head, that takes images in [0, 1]."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from clearance._checks import check_choice
from clearance.data.preprocessing import Preprocessing
from clearance.models.given import check_of_unit_images
from clearance.tensors import Head, Outputs, head_logits

ALWAYS = ("features", "logits")  # part of every classifier's outputs


@contextmanager
def recorded_activations(module: nn.Module, layers: Sequence[str]) -> Iterator[dict[str, Tensor]]:
    """Record the outputs of `layers` while the block runs; check them when it ends."""
    recorded: dict[str, Tensor] = {}
    versions: dict[str, int] = {}
    modules = dict(module.named_modules(remove_duplicate=False))  # a module that is used twice has two names

    def hook_for(name: str) -> Any:
        def hook(_module: nn.Module, _inputs: Any, output: Any) -> None:
            if name in recorded:
                raise ValueError(
                    f"layer {name!r} ran twice in one forward pass, so it has no one activation."
                )
            if not isinstance(output, Tensor):
                raise ValueError(f"layer {name!r} must return a tensor; got {type(output).__name__}.")  # noqa: TRY004
            recorded[name] = output
            if not output.is_inference():  # such a tensor has no version
                versions[name] = output._version

        return hook

    handles = []
    try:
        for name in layers:
            check_choice("layers", name, ["input", *ALWAYS, *(known for known in modules if known)])
            _check_own(name, modules)
            handles.append(modules[name].register_forward_hook(hook_for(name)))
        yield recorded
    finally:
        for handle in handles:
            handle.remove()
    _check_intact(layers, recorded, versions)


def check_reducers(module: nn.Module) -> None:
    """Raise ValueError for wrappers that average gradients at the first backward pass: a margin's sweep is one."""
    for name, part in module.named_modules():
        if isinstance(part, nn.parallel.DistributedDataParallel) and part.static_graph:
            raise ValueError(
                f"part {name!r} is a DistributedDataParallel with static_graph=True, which takes a margin's "
                "backward sweep for the backward pass and then averages no gradients; leave static_graph out, or put "
                "the loss into the wrapped module's forward (docs/large_margin.md)."
            )


def _check_reducer_around(model: nn.Module) -> None:
    """Raise ValueError for a wrapper that looks for tensors in what a model returns, and finds none in `Outputs`."""
    around = nn.parallel.DistributedDataParallel._get_active_ddp_module()
    if around is not None and around.module is model and around.static_graph:
        raise ValueError(
            "a DistributedDataParallel with static_graph=True averages no gradients of a Classifier that is called "
            "with `layers`; leave static_graph out, or put the loss into the wrapped module's forward "
            "(docs/large_margin.md)."
        )


def _check_own(name: str, modules: dict[str, nn.Module]) -> None:
    """Raise ValueError for a layer that runs as a copy: the logits do not depend on its recorded activation."""
    parts = name.split(".")
    for count in range(1, len(parts) + 1):
        outer = modules[".".join(parts[:count])]
        inside = count < len(parts)
        compiled = inside and hasattr(outer, "_orig_mod")
        if compiled or getattr(outer, "_compiled_call_impl", None) is not None:
            raise ValueError(
                f"layer {name!r} must not lie in compiled code, because torch.compile keeps no activations with a "
                "gradient; name a layer outside it, or do not compile while layers are read."
            )
        if isinstance(outer, torch.jit.ScriptModule):
            raise ValueError(  # noqa: TRY004
                f"layer {name!r} must not lie in a scripted module, because the outputs of its parts cannot be "
                "recorded; use the original module."
            )
        if inside and isinstance(outer, nn.DataParallel):
            raise ValueError(
                f"layer {name!r} must not lie in nn.DataParallel, because it runs once in every copy and no one "
                "activation leads to the logits; use a process for each device (torch.distributed) instead."
            )


def _check_intact(layers: Sequence[str], recorded: dict[str, Tensor], versions: dict[str, int]) -> None:
    for name in layers:
        if name not in recorded:
            raise ValueError(f"layer {name!r} did not run in the forward pass; name a layer that does.")
        if name in versions and recorded[name]._version != versions[name]:
            raise ValueError(
                f"the output of layer {name!r} was changed in place by what follows (nn.ReLU(inplace=True), "
                "for example); name the following layer, or make that operation out of place."
            )


def check_separate(extractor: nn.Module, head: nn.Module, name: str = "the head") -> None:
    """Raise ValueError if head and extractor share a parameter: they could not be trained separately."""
    own = {id(parameter) for parameter in head.parameters()}
    shared = [known for known, parameter in extractor.named_parameters() if id(parameter) in own]
    if shared:
        raise ValueError(
            f"{name} and the rest of the module share {', '.join(map(repr, shared))}, so extractor and head could not "
            "be trained separately; untie them, or choose a head that shares no parameters."
        )


class Classifier(nn.Module):
    r"""An image classifier of two parts: normalise, extract features, compute logits.

    logits = head(extractor((images - mean) / std))

    Args:
        extractor: Turns normalised images into features, shape (B, D).
        head: Turns features into logits, shape (B, C).
        mean: Subtracted from images, one value or one per channel, in [0, 1] units; at most 1.
        std: Divides images after that, likewise; above 0.

    Shapes:
        images (B, C, H, W) in [0, 1]; features (B, D); logits (B, C).

    Raises:
        TypeError: If images are no tensor, or whole numbers.
        ValueError: If `mean` is above 1 or `std` not above 0, images do not fit the extractor or features the head, or
            features are not of shape (B, D).

    >>> model = Classifier(nn.Flatten(), nn.Linear(16, 3), mean=0.5, std=0.5)
    >>> images = torch.rand(2, 1, 4, 4)
    >>> outputs = model.outputs(images)
    >>> outputs.features.shape, outputs.logits.shape
    (torch.Size([2, 16]), torch.Size([2, 3]))
    """

    mean: Tensor
    std: Tensor
    preprocessing: Preprocessing | None = None  # of pictures, where a model came with it
    example_size: tuple[int, int] | None = None  # height and width of the images that it was wrapped with
    cut: str | None = (
        None  # where a module was wrapped, the name of its head; empty where its input is no one vector
    )
    order: tuple[int, ...] | None = None  # the module's outputs, in the order of the classes
    unfinished: str | None = (
        None  # the way of training that has moved it, and that trains its head at the end
    )

    def __init__(
        self,
        extractor: nn.Module,
        head: nn.Module,
        mean: float | Sequence[float] = 0.0,
        std: float | Sequence[float] = 1.0,
    ) -> None:
        super().__init__()
        self.extractor = extractor
        self.head = head
        self.register_buffer("mean", torch.as_tensor(mean, dtype=torch.float32).reshape(-1, 1, 1))
        self.register_buffer("std", torch.as_tensor(std, dtype=torch.float32).reshape(-1, 1, 1))
        check_of_unit_images("mean", self.mean.flatten().tolist())
        check_of_unit_images("std", self.std.flatten().tolist())

    def features(self, images: Tensor) -> Tensor:
        """The head's input for these images, shape (B, D)."""
        _check_floating(images)
        channels = max(len(self.mean), len(self.std))
        if channels > 1 and images.shape[1] != channels:
            raise ValueError(
                f"images must have {channels} channels on axis 1, as `mean` and `std` do; got shape "
                f"{tuple(images.shape)}.{' One image: images[None].' if images.ndim == 3 else ''}"
            )
        features: Tensor = _asked(
            self.extractor, in_precision_of(self, (images - self.mean) / self.std), images
        )
        if features.ndim != 2:
            raise ValueError(
                f"the extractor must return features of shape (B, D); got {tuple(features.shape)}. "
                "End it with pooling or nn.Flatten()."
            )
        return features

    def forward(
        self, images: Tensor, layers: Sequence[str] | None = None, head: Head | None = None
    ) -> Tensor | Outputs:
        """Logits for images in [0, 1], shape (B, C); with `layers`, also an empty list, or `head`: as `outputs`."""
        if layers is None and head is None:
            return _asked(self.head, self.features(images))
        return self._recorded(images, layers or (), head)

    def outputs(self, images: Tensor, layers: Sequence[str] = (), head: Head | None = None) -> Outputs:
        """Features and logits with their graph, and the activations of `layers`.

        It is ``model(images, layers=layers, head=head)``, which also works on what other packages put around a model or
        in place of its ``forward`` (DistributedDataParallel, mixed precision).

        Args:
            images: In [0, 1], shape (B, C, H, W). With ``"input"`` among `layers` the caller's tensor receives no
                gradient.
            layers: Names of submodules (as in ``named_modules()``), or ``"input"``: the images as a
                new leaf that requires a gradient, in [0, 1] units. Features and logits are always included.
            head: Reads the features instead of the model's own head.

        Raises:
            TypeError: If `layers` is one word.
            ValueError: If a layer does not exist, does not run, runs twice, or its output is changed in
                place by what follows, because its gradient would then be silently wrong.
        """
        # code that `compile()` made keeps no activations
        call: Any = self if getattr(self, "_compiled_call_impl", None) is None else self.forward
        made: Outputs = call(images, layers=layers, head=head)
        return made

    def _recorded(self, images: Tensor, layers: Sequence[str], head: Head | None) -> Outputs:
        if isinstance(layers, str):
            raise TypeError(
                f"`layers` must be a list of names; got one word, {layers!r}. Write [{layers!r}]."
            )
        _check_floating(images)
        again = None if torch.is_grad_enabled() or not layers else partial(self._again, images, layers, head)
        activations: dict[str, Tensor] = {}
        if "input" in layers:
            images = images.detach().clone().requires_grad_()
            activations["input"] = images
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            _check_reducer_around(self)
            if layers:
                check_reducers(self)
        hidden = [name for name in dict.fromkeys(layers) if name not in ("input", *ALWAYS)]
        with recorded_activations(self, hidden) as recorded:
            features = self.features(images)
            reader = self.head if head is None else head
            logits = _asked(partial(head_logits, reader), features)
        activations.update(recorded)
        return Outputs(features, logits, reader, activations, again, images, self.mean)

    def _again(self, images: Tensor, layers: Sequence[str], head: Head | None) -> Outputs:
        """The same outputs with a graph, which starts at the images."""
        torch.clear_autocast_cache()  # of weights that were cast without a graph
        return self.outputs(images.clone() if images.is_inference() else images, [*layers, "input"], head)


class UnfitError(ValueError, RuntimeError):
    """Images do not fit the extractor, or features the head: torch's RuntimeError in words."""


_UNFIT = re.compile(
    r"shapes cannot be multiplied|expected input\[.*\] to have \d+ channels|running_mean should contain"
)


def _asked(part: Head, given: Tensor, images: Tensor | None = None) -> Tensor:
    """What the head gives for features, or the extractor for normalised images.

    Args:
        part: One of the two.
        given: Its input.
        images: The images, if it is the extractor.

    Raises:
        UnfitError: If torch says that shapes do not fit.
    """
    if torch.compiler.is_compiling():
        return part(given)
    try:
        return part(given)
    except RuntimeError as error:
        said = " ".join(str(error).split())
        if isinstance(error, UnfitError) or not _UNFIT.search(said):
            raise
        if images is None:
            what = f"the head must take the extractor's features, of shape {tuple(given.shape)}"
            remedy = "Give each layer as many inputs as the one before has outputs."
            if f"x{given.shape[-1]} and" in said:
                remedy = (
                    f"Give its first layer {given.shape[-1]} inputs, or images of the size it was made for."
                )
        else:
            what = f"the extractor must take images of shape {tuple(images.shape)}"
            remedy = "Give images of the channels and size that it was made for, or make it for these."
        raise UnfitError(f"{what}; torch says: {said.rstrip('.')}. {remedy}") from error


_PRECISIONS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def in_precision_of(module: nn.Module, images: Tensor) -> Tensor:
    """Images in the dtype of the module's first floating-point parameter.

    >>> in_precision_of(nn.Linear(2, 2, dtype=torch.bfloat16), torch.zeros(1, 2)).dtype
    torch.bfloat16
    """
    dtype = next((weight.dtype for weight in module.parameters() if weight.is_floating_point()), None)
    return images.to(dtype) if dtype in _PRECISIONS else images


def _check_floating(images: Tensor) -> None:
    if not isinstance(images, Tensor):
        raise TypeError(
            f"images must be a tensor of shape (B, C, H, W) in [0, 1]; got {type(images).__name__}. Arrays: "
            "torch.as_tensor(images)."
        )
    if not images.is_floating_point():
        raise TypeError(f"images must be floating point in [0, 1]; got {images.dtype}. Divide bytes by 255.")
    if images.ndim < 3:
        raise ValueError(f"images must have shape (B, C, H, W); got {tuple(images.shape)}.")


def check_classifier(model: object) -> None:
    """Raise TypeError unless `model` is a Classifier, and say how it becomes one."""
    if isinstance(model, Classifier):
        return
    if isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel):
        remedy = "Give its `.module`; under torchrun every process trains on its share, and gradients are averaged."
    elif hasattr(model, "_orig_mod"):
        remedy = "Give its `._orig_mod`, and fit's execution=Execution(compile_extractor=True)."
    else:
        remedy = "Make one with clearance.wrap(module, example=images)."
    kind = f"the class {model.__name__}" if isinstance(model, type) else type(model).__name__
    raise TypeError(f"`model` must be a clearance Classifier; got {kind}. {remedy}")


def check_logits(logits: Tensor, class_count: int) -> None:
    """Raise ValueError unless the head has an output for every class."""
    if logits.shape[-1] < class_count:
        raise ValueError(
            f"the model's head must have an output for each of the {class_count} classes; got "
            f"{logits.shape[-1]}. Give images of the classes that it knows, or, before training, a wider last layer."
        )
