"""How often is the classifier wrong?"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from clearance.audits._audit import Audit, Findings, Subject, share_of
from clearance.data import ImageSet
from clearance.records.summary import Z_95
from clearance.vocabulary import Exhibit, Measurement

HARDLY = 0.1  # share of the errors of always naming the largest class, of which more must be gone
MOST_WRONG = 0.5  # error from which on no order of the outputs is called the right one


@dataclass(frozen=True)
class Accuracy(Audit):
    """The error of the classifier with its own head, on training and held-out images.

    Measurement ``error``: wrong images / images, with a 95 % Wilson interval, for ``split`` train and test.
    Exhibit ``error``, of kind ``per_image``: which held-out images are wrong, so that two models can be compared image
    by image.

    An image whose logits are not finite counts as wrong. Where a set has such images, ``not_finite`` is their share,
    and the exhibit of that name says which they are.

    Where the outputs are in another order than the classes, ``error_in_another_order`` is the error on test images in
    the order that is right most often on training images, and the exhibit ``order`` has the output of each class. Both
    are there only if their Wilson intervals show that this order is better and that it is right on most images: some
    order is better than the given one for every poor network.

    Where it is hardly better than always naming the largest class of the test images, ``largest_class`` is the share of
    that class: where it makes at least nine tenths of the errors of that rule, and its mean recall over classes is not
    clearly above chance. It is left out where the outputs are in another order, some logits are not finite, or all test
    images are of one class.

    Misleads as a comparison of two models audited on the same images: their intervals overlap more than the
    models differ; compare over seeds, paired.

    >>> from torch import nn
    >>> from clearance.data import gaussian_images
    >>> _ = torch.manual_seed(0)
    >>> from clearance.models import Classifier
    >>> train, test = gaussian_images(per_class=20, seed=0), gaussian_images(per_class=20, seed=1)
    >>> found = Accuracy()(Classifier(nn.Flatten(), nn.Linear(64, 3)), train, test)
    >>> [(m.name, m.n, m.context["split"]) for m in found.measurements if m.name == "error"]
    [('error', 60, 'test'), ('error', 60, 'train')]
    """

    name: ClassVar[str] = "accuracy"

    def examine(self, subject: Subject) -> Findings:
        """Errors on both sets."""
        wrong = subject.test_predictions != subject.test.labels
        numbers = [
            _share("error", wrong, "test"),
            _share("error", subject.train_predictions != subject.train.labels, "train"),
        ]
        caption = "Which held-out images are wrong (1) and right (0), in their order."
        exhibits = [_image_by_image("error", wrong, "test", subject.test, caption)]
        for split, data, answers in (
            ("test", subject.test, subject.test_predictions),
            ("train", subject.train, subject.train_predictions),
        ):
            if (unanswered := answers < 0).any():
                numbers.append(_share("not_finite", unanswered, split))
                caption = "Which images have logits that are not finite (1), in their order."
                exhibits.append(_image_by_image("not_finite", unanswered, split, data, caption))
        order = best_order(subject.train_predictions, subject.train.labels, subject.test.class_count)
        reordered = _share(
            "error_in_another_order", subject.test_predictions != order[subject.test.labels], "test"
        )
        assert reordered.high is not None
        assert numbers[0].low is not None
        if reordered.high < min(numbers[0].low, MOST_WRONG):
            numbers.append(reordered)
            by_name = subject.model.order  # the module's outputs, as the names that it keeps put them
            outputs = [at if by_name is None else by_name[at] for at in order.tolist()]
            columns = {"class": list(subject.test.classes), "output": outputs}
            caption = "The output that stands for each class, so that most training images are right."
            context = {} if by_name is None else {"outputs": "found by name"}
            exhibits.append(Exhibit(self.name, "order", "table", columns, caption, context))
        elif (largest := _largest_class(subject, numbers[0])) is not None:
            numbers.append(largest)
        return Findings(tuple(numbers), tuple(exhibits))


def best_order(predictions: Tensor, labels: Tensor, classes: int) -> Tensor:
    """The output for each class (C,) with which most predictions are right: an assignment of outputs to classes.

    >>> best_order(torch.tensor([1, 1, 0]), torch.tensor([0, 0, 1]), 2)
    tensor([1, 0])
    """
    known = predictions >= 0
    outputs = max([classes, *(predictions[known] + 1).tolist()])
    pairs = labels[known] * outputs + predictions[known]
    table = torch.bincount(pairs, minlength=classes * outputs).view(classes, outputs)
    _, columns = linear_sum_assignment(table.cpu().numpy(), maximize=True)
    return torch.from_numpy(columns).to(labels.device)


def _largest_class(subject: Subject, error: Measurement) -> Measurement | None:
    """The share of the largest class; None where predictions tell more than always naming it does.

    That is where the error is clearly lower, or the classes' mean recall clearly higher: a detector of a rare class may
    find most of it and still be wrong as often. Nothing is said of logits that are not finite, either.
    """
    labels, answers = subject.test.labels, subject.test_predictions
    counts = labels.bincount()
    counts = counts[counts > 0].double()
    share = float(counts.max()) / len(labels)
    if share == 1 or error.value < (1 - HARDLY) * (1 - share) or bool((answers < 0).any()):
        return None
    hits = torch.stack([(answers[labels == name] == name).sum() for name in labels.unique()]).double()
    shares = (hits + 2) / (counts + 4)  # Agresti and Coull's, so that no class of few images seems certain
    half = Z_95 * float((shares * (1 - shares) / counts).sum().sqrt()) / len(counts)
    guessed = 1 / len(counts)
    if float((hits / counts).mean()) - half > guessed + HARDLY * (1 - guessed):
        return None
    return Measurement(
        Accuracy.name, "largest_class", share, "fraction", len(labels), context={"split": "test"}
    )


def _share(name: str, wrong: Tensor, split: str) -> Measurement:
    return share_of(Accuracy.name, name, int(wrong.sum()), len(wrong), "lower", {"split": split})


def _image_by_image(name: str, which: Tensor, split: str, data: ImageSet, caption: str) -> Exhibit:
    return Exhibit(
        Accuracy.name,
        name,
        "per_image",
        {"value": which.int().tolist()},
        caption,
        {"split": split, "images": data.digest()[:16]},
    )
