"""scikit-learn: a network with any of Clearance's ways of training, as a classifier for pipelines and searches."""

import copy
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted
from torch import nn

from clearance._rng import cuda_in_use
from clearance.data import ImageSet
from clearance.heads import MLP
from clearance.models import Classifier
from clearance.training import EndToEnd, WayOfTraining, fit

try:
    from sklearn.utils.validation import validate_data
except ImportError as error:
    raise ImportError("this needs scikit-learn 1.6: pip install 'scikit-learn>=1.6'.") from error

_LARGEST_SEED = 2**31 - 1


def _plain(number: Any) -> Any:
    """Whole numbers of a grid that NumPy made are Python's; all else is as it was given."""
    return int(number) if isinstance(number, np.integer) else number


class ClearanceClassifier(ClassifierMixin, BaseEstimator):
    """A network that is trained by :func:`clearance.fit`, with scikit-learn's methods.

    Rows are images: flat, or of `shape`. Pixels are brought to [0, 1] by the smallest and largest value of the training
    data (values outside are cut), and normalised by their mean and deviation. Training is on the CPU.

    Args:
        way: A way of training, such as ``FOCA()`` or ``EndToEnd(LargeMarginLoss(("input",)))``; None is `EndToEnd`.
        hidden: Widths of hidden layers; the last is the number of features.
        shape: (C, H, W) of an image; None is one row of pixels.
        network: Called with the shape and the number of classes, returns a Classifier; None is a perceptron.
        epochs: Passes over the training data, at least 1.
        batch_size: Rows in a step, at least 2.
        learning_rate: Of SGD with momentum 0.9, above 0.
        random_state: Seed of weights, batches and weak heads: a number, a RandomState, or None for a new one.

    Attributes:
        classes_: The labels, sorted.
        model_: The trained Classifier, which takes images in [0, 1]; :func:`clearance.audit` takes it with `images`.
        n_features_in_: Pixels of a row.

    Raises:
        ValueError: In ``fit``, if there is only one class or a row does not fit `shape`.

    >>> from sklearn.datasets import load_digits
    >>> x, y = load_digits(return_X_y=True)
    >>> model = ClearanceClassifier(epochs=5, random_state=0).fit(x[:1000], y[:1000])
    >>> model.score(x[1000:], y[1000:]) > 0.85
    True
    """

    def __init__(
        self,
        way: WayOfTraining | None = None,
        hidden: Sequence[int] = (64,),
        shape: tuple[int, int, int] | None = None,
        network: Callable[[tuple[int, int, int], int], Classifier] | None = None,
        epochs: int = 20,
        batch_size: int = 32,
        learning_rate: float = 0.05,
        random_state: Any = None,
    ) -> None:
        self.way = way
        self.hidden = hidden
        self.shape = shape
        self.network = network
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> Self:
        """Train on rows `X`, (N, pixels), with labels `y`, (N,)."""
        X, y = validate_data(self, X, y, dtype=np.float64, ensure_min_samples=2)
        check_classification_targets(y)
        self.classes_, numbers = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"`y` must hold at least 2 classes; got 1 class, {self.classes_[0]}.")
        self._low, self._range = float(X.min()), float(np.ptp(X)) or 1.0
        data = self._set(X, numbers, tuple(map(str, range(len(self.classes_)))))
        seed = int(check_random_state(self.random_state).randint(_LARGEST_SEED))
        with torch.random.fork_rng(devices=cuda_in_use()):
            torch.manual_seed(seed)
            model = (self.network or self._perceptron)(data.shape, len(self.classes_))
        if self.network is None:
            model.mean.fill_(float(data.images.mean()))
            model.std.fill_(max(float(data.images.std()), 1e-6))
        self.way_ = EndToEnd() if self.way is None else copy.deepcopy(self.way)  # a loss may hold state
        optimizer = partial(torch.optim.SGD, lr=self.learning_rate, momentum=0.9)
        self.result_ = fit(
            model, self.way_, data, epochs=_plain(self.epochs), batch_size=_plain(self.batch_size),
            optimizer=optimizer, seed=seed,
        )  # fmt: skip
        self.model_ = self.result_.model
        if not self.result_.status.good:
            warnings.warn(f"the network {self.result_.status}", ConvergenceWarning, stacklevel=2)
        return self

    def images(self, X: Any, y: Any) -> ImageSet:
        """Rows and labels as the images that the network takes: for :func:`clearance.audit`.

        Raises:
            ValueError: If a label was not in training.
        """
        check_is_fitted(self)
        y = np.asarray(y)
        if len(new := np.setdiff1d(y, self.classes_)):
            raise ValueError(
                f"`y` must hold labels of the training data, {', '.join(map(str, self.classes_[:5]))}; got {new[0]!s}. "
                "Leave its rows out."
            )
        rows, numbers = (
            validate_data(self, X, dtype=np.float64, reset=False),
            np.searchsorted(self.classes_, y),
        )
        return self._set(rows, numbers, tuple(map(str, self.classes_)))

    def decision_function(self, X: Any) -> NDArray[Any]:
        """Logits, (N, classes); for two classes their difference, (N,)."""
        logits = self._logits(X)
        return logits[:, 1] - logits[:, 0] if logits.shape[1] == 2 else logits

    def predict_proba(self, X: Any) -> NDArray[Any]:
        """Softmax of the logits, (N, classes)."""
        return np.asarray(torch.from_numpy(self._logits(X)).softmax(dim=1))

    def predict(self, X: Any) -> NDArray[Any]:
        """The label of each row, (N,)."""
        numbers = self._logits(X).argmax(axis=1)
        return np.asarray(self.classes_[numbers])

    def _logits(self, X: Any) -> NDArray[Any]:
        check_is_fitted(self)
        rows = self._pixels(validate_data(self, X, dtype=np.float64, reset=False))
        # in float64, so that a row's logits do not depend on the other rows
        model = copy.deepcopy(self.model_).double().eval()
        with torch.no_grad():
            return np.concatenate([np.asarray(model(part)) for part in rows.split(256)])

    def _pixels(self, X: NDArray[Any]) -> torch.Tensor:
        shape = (1, 1, X.shape[1]) if self.shape is None else tuple(self.shape)
        if np.prod(shape) != X.shape[1]:
            raise ValueError(
                f"`shape` must have {X.shape[1]} pixels, as each row of X has features; got {shape}."
            )
        return torch.from_numpy((X - self._low) / self._range).clamp(0, 1).reshape(len(X), *shape)

    def _set(self, X: NDArray[Any], numbers: NDArray[Any], names: tuple[str, ...]) -> ImageSet:
        pixels = self._pixels(X).float()
        return ImageSet(pixels, torch.from_numpy(np.asarray(numbers)).long(), names)

    def _perceptron(self, shape: tuple[int, int, int], classes: int) -> Classifier:
        widths = [int(np.prod(shape)), *map(_plain, self.hidden)]
        layers: list[nn.Module] = [nn.Flatten()]
        for before, after in pairwise(widths):
            layers += [nn.Linear(before, after), nn.ReLU()]
        return Classifier(nn.Sequential(*layers), MLP((widths[-1], classes)))
