"""What a regime is given, refused where a step would fail obscurely or train on nonsense in silence."""

from torch import Tensor

from clearance.data.image_set import ImageSet, check_labels, check_pixels
from clearance.objectives._objective import Objective


def check_objective(objective: object) -> None:
    """Raise TypeError unless `objective` is an Objective."""
    if not isinstance(objective, Objective):
        raise TypeError(
            f"`objective` must be an Objective, such as clearance.objectives.CrossEntropyLoss(); got "
            f"{_named(objective)}. Wrap a loss of your own in a subclass of clearance.objectives.Objective."
        )


def check_batch(images: Tensor, labels: Tensor, data: ImageSet) -> None:
    """Raise ValueError unless the batch holds images in [0, 1] and a class of `data` for each.

    On an accelerator values are not looked at: every step would wait for them.
    """
    if len(images) == 0 or len(labels) != len(images):
        raise ValueError(
            f"a batch must hold at least one image and as many labels; got {len(images)} images and "
            f"{len(labels)} labels."
        )
    if images.device.type == "cpu":
        check_labels(labels, images, data.classes)
        check_pixels(images.detach())


def check_logits(logits: Tensor, data: ImageSet) -> None:
    """Raise ValueError unless the head has an output for every class of `data`."""
    if logits.shape[-1] < data.class_count:
        raise ValueError(
            f"the model's head must have an output for each of the {data.class_count} classes; got "
            f"{logits.shape[-1]}. Give it a wider last layer."
        )


def _named(thing: object) -> str:
    return f"the class {thing.__name__}" if isinstance(thing, type) else type(thing).__name__
