"""The classifier for scikit-learn, by scikit-learn's own checks."""

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import clearance as cl
from clearance.integrations.sklearn import ClearanceClassifier
from clearance.losses import GaussianMixtureLoss, LargeMarginLoss
from clearance.training import FOCA, EndToEnd

SMALL = ClearanceClassifier(hidden=(16,), epochs=30, batch_size=16, random_state=0)
X, Y = load_digits(return_X_y=True)
TRAIN, TEST = slice(0, 1200), slice(1200, None)


@pytest.mark.filterwarnings("ignore::clearance.losses.TrainingWarning")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@parametrize_with_checks([SMALL])
def test_it_passes_scikit_learns_checks(estimator, check):
    check(estimator)


def mixture(shape, classes):
    import torch

    extractor = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 32))
    return cl.Classifier(extractor, cl.heads.GaussianMixture(32, classes), 0.3, 0.4)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"way": EndToEnd(LargeMarginLoss(("input", "features")))},
        {"way": FOCA()},
        {"way": EndToEnd(GaussianMixtureLoss()), "network": mixture},
        {"shape": (1, 8, 8), "hidden": (64, 32)},
    ],
    ids=["plain", "margin", "foca", "mixture", "shape"],
)
def test_digits(options):
    model = ClearanceClassifier(epochs=8, random_state=0, **options).fit(X[TRAIN], Y[TRAIN])
    assert model.score(X[TEST], Y[TEST]) > 0.88
    assert np.allclose(model.predict_proba(X[TEST]).sum(axis=1), 1)
    again = ClearanceClassifier(epochs=8, random_state=0, **options).fit(X[TRAIN], Y[TRAIN])
    assert np.array_equal(again.predict_proba(X[TEST]), model.predict_proba(X[TEST]))


def test_a_search_over_ways_in_a_pipeline():
    ways = [None, EndToEnd(LargeMarginLoss(("input",)))]
    pipeline = make_pipeline(StandardScaler(), ClearanceClassifier(epochs=3, random_state=0))
    search = GridSearchCV(
        pipeline,
        {"clearanceclassifier__way": ways, "clearanceclassifier__learning_rate": [0.001, 0.05]},
        cv=2,
    )
    search.fit(X[TRAIN], Y[TRAIN])
    assert search.best_params_["clearanceclassifier__learning_rate"] == 0.05
    assert search.score(X[TEST], Y[TEST]) > 0.8


def test_a_search_over_whole_numbers_of_numpy():
    grid = {"batch_size": np.array([32, 64]), "epochs": np.arange(1, 2), "hidden": [tuple(np.array([16]))]}
    search = GridSearchCV(ClearanceClassifier(random_state=0), grid, cv=2, error_score="raise")
    assert search.fit(X[TRAIN], Y[TRAIN]).best_score_ > 0.5


def test_what_it_trained_can_be_audited():
    names = np.array([f"d{label}" for label in Y])
    model = ClearanceClassifier(epochs=3, random_state=0).fit(X[TRAIN], names[TRAIN])
    train, test = model.images(X[TRAIN], names[TRAIN]), model.images(X[TEST], names[TEST])
    card = cl.audit(model.model_, train=train, test=test, audits=["accuracy"])
    assert card.measurements[0].value == pytest.approx(1 - model.score(X[TEST], names[TEST]), abs=0.002)


def test_labels_may_have_any_name():
    names = np.where(Y < 5, "mean", "all")
    assert (
        ClearanceClassifier(epochs=3, random_state=0).fit(X[TRAIN], names[TRAIN]).score(X[TEST], names[TEST])
        > 0.8
    )


def test_a_shape_that_does_not_fit_and_a_single_class_are_refused():
    with pytest.raises(
        ValueError, match=r"`shape` must have 64 pixels, as each row of X has features; got \(1, 7"
    ):
        ClearanceClassifier(shape=(1, 7, 8)).fit(X, Y)
    with pytest.raises(ValueError, match="`y` must hold at least 2 classes; got 1 class, 0"):
        ClearanceClassifier().fit(X, np.zeros_like(Y))


def test_a_training_that_failed_is_said():
    with pytest.warns(ConvergenceWarning, match="the network collapsed at step"):
        ClearanceClassifier(learning_rate=1e-6, epochs=1, random_state=0).fit(X[TRAIN], Y[TRAIN])


def test_images_are_what_the_network_predicts_from():
    known = Y[TRAIN] != 4
    rows = X[TRAIN][known].clip(2, 12)
    model = ClearanceClassifier(epochs=3, random_state=0).fit(rows, Y[TRAIN][known])
    seen = Y[TEST] != 4
    images = model.images(X[TEST][seen], Y[TEST][seen])
    logits = model.model_.eval()(images.images)
    assert (model.classes_[logits.argmax(dim=1)] == model.predict(X[TEST][seen])).all()
    with pytest.raises(ValueError, match="`y` must hold labels of the training data, 0, 1, 2, 3, 5; got 4"):
        model.images(X[TEST], Y[TEST])
