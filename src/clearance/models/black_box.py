"""Anything that answers images with logits, as a classifier without features: scripted, quantised, a function."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from clearance.data.preprocessing import preprocessing_of
from clearance.models._running import evaluating, warn_of_neighbours
from clearance.models.classifier import Classifier
from clearance.models.cut import two_logits
from clearance.models.given import checked_example, failed_on, logits_entries, normalisation_of

FEATURES, GRADIENTS = "features", "gradients"  # what audits need besides logits
_ROUNDING = 0.02  # of the sum of probabilities, which may be rounded to three places, or in bfloat16


def black_box(
    call: Callable[[Tensor], Any],
    *,
    example: Tensor,
    mean: float | Sequence[float] = 0.0,
    std: float | Sequence[float] = 1.0,
    preprocessing: Any = None,
    verbose: bool = True,
) -> Classifier:
    """A classifier of which only the logits are read: for models that :func:`wrap` cannot cut.

    Such as a scripted, exported or quantised module, one with something after its last layer, or a function that asks
    a service. The logits stand for its features, so audits that need features are left out, and so are audits that
    need gradients if it gives none; the page names both.

    Args:
        call: Takes one batch of images, (B, C, H, W), and returns logits (B, K) as a tensor, an array or a list, or an
            object or dictionary with `logits`. One output, (B,) or (B, 1), is the logit of the second of two
            classes. Of probabilities (rows that sum to 1) the logarithm is taken: its softmax gives them back.
        example: A few images in [0, 1], on the device of `call`.
        mean: See :func:`wrap`.
        std: See :func:`wrap`.
        preprocessing: See :func:`wrap`.
        verbose: Print one line: number of classes, and what cannot be asked.

    Raises:
        ValueError: If `call` cannot be called, fails on the example, gives no finite logits, or outputs of several
            forms of which none is named `logits`.

    Warns:
        UserWarning: If outputs may be probabilities of a sigmoid, which are taken for logits: return their ``logit()``.
            Or if the same images get other logits when asked again, or beside other images.

    >>> model = black_box(lambda images: (-images.flatten(1)[:, :3]).tolist(), example=torch.rand(4, 1, 4, 4))
    black box: 3 classes; it gives no features and no gradients
    >>> model(torch.rand(2, 1, 4, 4)).shape
    torch.Size([2, 3])
    """
    model, line = boxed(call, example=example, mean=mean, std=std, preprocessing=preprocessing)
    if verbose:
        print(line)  # noqa: T201 - `verbose` asks for it
    return model


def boxed(
    call: Callable[[Tensor], Any],
    *,
    example: Tensor,
    mean: float | Sequence[float] = 0.0,
    std: float | Sequence[float] = 1.0,
    preprocessing: Any = None,
) -> tuple[Classifier, str]:
    """The classifier, and the line that `black_box` prints."""
    if not callable(call):
        raise ValueError(f"`call` must be a module or a function of images; got {type(call).__name__}.")  # noqa: TRY004
    example = checked_example(example)
    centre, scale = normalisation_of(example, mean, std, preprocessing)
    answers = Answers(call)
    head = nn.Identity()
    head.training = answers.training
    model = Classifier(answers, head)
    model.mean, model.std = centre, scale
    model.example_size = (example.shape[2], example.shape[3])
    model.preprocessing = None if preprocessing is None else preprocessing_of(preprocessing)
    model.training = answers.training
    with evaluating(model):
        logits = _first(model, example)
        if not torch.allclose(_first(model, example), logits, rtol=1e-3, atol=1e-3):
            warnings.warn(
                "the black box gives other logits when it is asked again; every number is of one answer. Turn off what "
                "is random, such as dropout.",
                UserWarning,
                stacklevel=3,
            )
        else:
            warn_of_neighbours(model, example)
        rows = logits.double().sum(dim=1)
        inside = bool(((logits >= 0) & (logits <= 1 + _ROUNDING)).all())
        answers.probabilities = inside and not answers.single and bool(((rows - 1).abs() < _ROUNDING).all())
        if inside and not answers.probabilities:
            warnings.warn(
                "all outputs of the black box lie in [0, 1], as those of a sigmoid, and are taken for logits. If they "
                "are probabilities, give their logits: torch.logit(p).",
                UserWarning,
                stacklevel=3,
            )
    answers.gradients = _has_gradients(model, example)
    lacking = " and ".join(f"no {word}" for word in lacks(model))
    of_them = ", the logarithm of its probabilities" if answers.probabilities else ""
    return model, f"black box: {logits.shape[1]} classes{of_them}; it gives {lacking}"


def lacks(model: Classifier) -> tuple[str, ...]:
    """What cannot be asked of a classifier: of a black box features, and gradients if it gives none.

    >>> lacks(Classifier(nn.Flatten(), nn.Linear(4, 2)))
    ()
    """
    if not isinstance(model.extractor, Answers):
        return ()
    return (FEATURES,) if model.extractor.gradients else (FEATURES, GRADIENTS)


class Answers(nn.Module):
    """The logits of `call`, shape (B, K), at least float32."""

    def __init__(self, call: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.call = call  # a module becomes a submodule
        self.training = getattr(call, "training", False)
        self.probabilities = self.gradients = self.single = False

    def forward(self, images: Tensor) -> Tensor:
        """Ask, and bring the answer into the form of logits."""
        answer = self.call(images)
        if isinstance(answer, list) and len(answer) == len(images) and _are_rows(answer):
            answer = torch.stack(answer)
        named = answer.get("logits") if isinstance(answer, Mapping) else getattr(answer, "logits", None)
        found = _only(logits_entries(answer), len(images)) if named is None else named
        if found is None:
            found = answer
        try:
            logits = torch.as_tensor(found).to(images.device)
        except (TypeError, ValueError, RuntimeError) as error:
            raise _AnswerError(
                f"`call` must give logits: a tensor, an array or lists of numbers, a row for each image; got "
                f"{type(found).__name__}{_of_what(found)}. Give a function that returns the logits alone."
            ) from error
        if logits.ndim == 1 and not logits.is_floating_point():
            raise _AnswerError(
                f"`call` must give logits, one of each class; got whole numbers ({logits.dtype}), as of classes. Give "
                "what is before its argmax."
            )
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        self.single = logits.ndim == 1 or logits.shape[1:] == (1,)
        if self.single:
            logits = two_logits(logits)
        if logits.ndim != 2 or len(logits) != len(images):
            raise _AnswerError(
                f"`call` must give logits of shape (B, K); got {tuple(logits.shape)} for {len(images)} images."
            )
        return logits.clamp_min(torch.finfo(logits.dtype).tiny).log() if self.probabilities else logits


def _only(entries: Mapping[str, Tensor], images: int) -> Tensor | None:
    """What may be logits in an answer; the first of several of one form.

    Raises:
        ValueError: If they have several forms, such as features beside logits.
    """
    rows = {name: one for name, one in entries.items() if one.ndim in (1, 2) and len(one) == images}
    if len({one.shape for one in rows.values()}) > 1:
        several = ", ".join(f"{name!r} {tuple(one.shape)}" for name, one in rows.items())
        raise _AnswerError(
            f"`call` must give the logits, or something with `logits`; got several outputs: {several}. Give a function "
            "that returns the logits alone."
        )
    return next(iter(rows.values()), next(iter(entries.values()), None))


class _AnswerError(ValueError):
    """The images are fine, the answer is not."""


def _of_what(answer: Any) -> str:
    return f" of {type(answer[0]).__name__}" if isinstance(answer, (list, tuple)) and answer else ""


def _are_rows(answer: list[Any]) -> bool:
    """Whether each of a list is the logits of one image."""
    shapes = {one.shape if isinstance(one, Tensor) else None for one in answer}
    return len(shapes) == 1 and all(shape is not None and len(shape) == 1 for shape in shapes)


def _first(model: Classifier, example: Tensor) -> Tensor:
    try:
        logits: Tensor = model(example)
    except _AnswerError:
        raise
    except Exception as error:
        raise failed_on("call", example, error) from error
    if not bool(logits.isfinite().all()):
        raise ValueError("`call` must give finite logits; got NaN or infinity on the example.")
    return logits


def _has_gradients(model: Classifier, example: Tensor) -> bool:
    """Whether the logits have a gradient with respect to the images."""
    with evaluating(model), torch.enable_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's, of operations without a derivative
        images = example[:1].clone().requires_grad_()
        try:
            (found,) = torch.autograd.grad(model(images).square().sum(), images)
        except Exception:  # noqa: BLE001 - no graph, or an operation without a derivative: each package says it its way
            return False
    return bool(found.any())
