"""The watch on training: it says what went wrong, once, soon; and nothing in a training that is well."""

import copy
import math
import pickle
import warnings

import pytest
import torch
from torch import nn

import clearance as cl
from clearance.heads import GaussianMixture
from clearance.losses import (
    CenterLoss,
    CrossEntropyLoss,
    GammaQuantile,
    GaussianMixtureLoss,
    HingeLoss,
    LargeMarginLoss,
    LargeMarginSoftmaxLoss,
    Loss,
    SquaredErrorLoss,
    StepUp,
    SumLoss,
    TrainingWarning,
    TripletLoss,
)
from clearance.losses._loss import TrainingWatch
from clearance.models import Classifier
from clearance.tensors import LossTerms, Outputs

LABELS = torch.arange(10).repeat(4)


def outputs(logits):
    return Outputs(torch.zeros(len(logits), 2), logits, nn.Identity())


def good(noise=0.1):
    return nn.functional.one_hot(LABELS, 10) + noise * torch.randn(40, 10)


def said(run):
    """The messages of all warnings in order."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run()
    assert all(one.category is TrainingWarning for one in caught)
    return [str(one.message) for one in caught]


def noted(*logits, repeats=1, temperature=1.0, labels=LABELS):
    """What is said of batches with these logits, under cross-entropy at a temperature."""
    watch = TrainingWatch()

    def run():
        for z in logits:
            terms = LossTerms({"loss": nn.functional.cross_entropy(z / temperature, labels)})
            for _ in range(repeats):
                watch.note(outputs(z), labels, terms)

    return said(run)


def test_a_training_that_is_well_is_silent():
    torch.manual_seed(0)
    assert noted(*(k * good() for k in (0.1, 0.5, 1.0, 2.0, 5.0, 20.0)), repeats=60) == []


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_numbers_that_are_not_finite_are_said_once(bad):
    (message,) = noted(good(), torch.full((40, 10), bad), repeats=10)
    assert "lost its numbers after 15 batches" in message
    assert "lower it" in message
    (message,) = noted(bad * good())
    assert "begins without numbers, in the first batch" in message
    assert "in the images and in the first weights" in message
    assert "learning rate" not in message


IMAGES = torch.rand(40, 1, 4, 4, generator=torch.Generator().manual_seed(0))


def shown(images, loss=None, module=None, **normalisation):
    """What is said of these images in a loop of one's own, without a step."""
    torch.manual_seed(0)
    model = Classifier(nn.Flatten(), nn.Linear(16, 10) if module is None else module, **normalisation)
    loss = loss or CrossEntropyLoss()

    def run():
        for _ in range(15):
            loss(model.outputs(images, loss.layers), LABELS)

    return said(run)


@pytest.mark.parametrize("layers", [(), ("input",)])
def test_images_that_the_model_does_not_take_are_said_once(layers):
    loss = LargeMarginLoss(layers) if layers else CrossEntropyLoss()
    broken = IMAGES.clone()
    broken[7, 0, 1, 1] = math.nan
    (message,) = shown(broken, loss)
    assert (
        message == "the images of batch 1 hold NaN or infinity, and so will the weights; repair or drop them."
    )
    (message,) = shown((255 * IMAGES).round(), CrossEntropyLoss())
    assert "the images of batch 1 have values from 0 to 25" in message
    assert "a Classifier takes [0, 1]; divide bytes by 255" in message
    assert "divide bytes by 255" in message


def test_images_with_noise_or_normalised_by_the_caller_are_not_said():
    assert shown((IMAGES + 0.3).clamp(0, 1.3)) == []
    assert shown(4 * IMAGES - 1.5) == []
    assert shown(IMAGES, mean=0.5, std=0.25) == []


def test_images_that_are_normalised_twice_are_said_once():
    (message,) = shown(4 * IMAGES - 1.5, mean=0.5, std=0.25)
    assert "this Classifier normalises images in [0, 1] itself" in message


def counted(loss, *, stepping, batches=60, head=None, optimizer=None):
    """What is said in batches of two classes in a loop that calls `after_step`, or never does."""
    torch.manual_seed(0)
    head, labels = head or nn.Linear(3, 2), torch.arange(8) % 2
    x = torch.randn(8, 3, requires_grad=True)

    def run():
        for _ in range(batches):
            outputs = Outputs(x, head(x), head)
            loss(outputs, labels).total.backward()
            if optimizer is not None:
                optimizer.step()
            if stepping:
                loss.after_step(outputs, labels)

    return said(run)


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        (lambda: CenterLoss(3, 2), "the centres have not moved"),
        (lambda: LargeMarginLoss(("logits",), every=4), "the margin counts 4-fold"),
        (
            lambda: LargeMarginLoss(("logits",), gamma=GammaQuantile(0.9)),
            "gamma is each batch's own quantile",
        ),
        (lambda: LargeMarginSoftmaxLoss(), "the weight of softmax is still 1000"),
        (lambda: SumLoss({"a": CrossEntropyLoss(), "b": CenterLoss(3, 2)}), "the centres have not moved"),
    ],
)
def test_what_stands_still_without_after_step_is_said_once(loss, words):
    assert counted(loss(), stepping=True) == []
    (message,) = counted(loss(), stepping=False)
    assert words in message
    assert "call loss.after_step(outputs, labels)" in message


def test_a_margin_of_the_mixture_that_follows_a_schedule_waits_for_after_step():
    head = GaussianMixture(3, 2)
    head.means.requires_grad = False
    loss = GaussianMixtureLoss(alpha=StepUp(0.1, 2.0, every=10, most=1.0))
    (message,) = counted(loss, stepping=False, head=head)
    assert "alpha is still 0.1, as at the start" in message
    assert counted(loss, stepping=True, head=head) == []


def test_means_of_classes_that_no_optimiser_moves_are_said_once():
    head = GaussianMixture(3, 2)
    (message,) = counted(GaussianMixtureLoss(), stepping=True, head=head)
    assert "the means of the classes have not changed in 50 batches" in message
    (message,) = counted(CenterLoss(3, 2, update="gradient"), stepping=True)
    assert "give the optimiser the parameters" in message
    loss = CenterLoss(3, 2, update="gradient")
    optimizer = torch.optim.SGD(loss.parameters(), lr=0.1)
    assert counted(loss, stepping=True, optimizer=optimizer) == []


def test_probabilities_in_place_of_logits_are_said_once_but_by_squared_error():
    softmax = nn.Sequential(nn.Linear(16, 10), nn.Softmax(dim=1))
    (message,) = shown(IMAGES, module=softmax)
    assert message.startswith(
        "the logits of batch 1 look like probabilities, at least 0 and of sum 1 in every row"
    )
    assert "remove the softmax" in message
    assert len(shown(IMAGES, SumLoss({"a": CrossEntropyLoss(), "b": SquaredErrorLoss()}), softmax)) == 1
    assert shown(IMAGES, SquaredErrorLoss(), softmax) == []
    steep = nn.Linear(16, 10)
    nn.init.normal_(steep.weight, std=10)  # some probabilities are exactly 1
    assert "look like probabilities" in shown(IMAGES, module=nn.Sequential(steep, nn.Softmax(dim=1)))[0]
    assert shown(IMAGES, module=nn.Sequential(nn.Linear(16, 10), nn.ReLU())) == []
    logits = good()
    assert noted(logits - logits.mean(dim=1, keepdim=True) + 0.1) == []  # of sum 1, but some below 0


def test_a_loss_that_explodes_is_said_with_its_numbers():
    torch.manual_seed(0)
    (message,) = noted(*(0.1 * good() for _ in range(9)), -100 * good())
    assert "training has exploded after 10 batches" in message
    assert "cross-entropy from 2." in message
    assert "guessing has 2.3" in message


def test_a_network_that_guesses_worse_than_at_first_twice_in_a_row_is_said():
    """As with Adam at 0.2 and tanh: cross-entropy stays at twice that of guessing, too little to be far off."""
    torch.manual_seed(0)
    (message,) = noted(0.1 * good(), *(-3.5 * good() for _ in range(30)))
    assert "training has exploded after 15 batches" in message
    assert noted(0.1 * good(), *(-3.5 * good() for _ in range(9)), *(good() for _ in range(20))) == []


def test_an_explosion_in_the_first_batches_that_passes_is_silent():
    """As with Adam and batch normalisation: cross-entropy is 30 after the first step, and the network learns."""
    torch.manual_seed(0)
    assert noted(0.1 * good(), *(-30 * good() for _ in range(4)), *(good() for _ in range(40))) == []


def test_a_bad_start_that_gets_better_is_not_an_explosion():
    """Features far away at first, as under a Gaussian mixture."""
    torch.manual_seed(0)
    assert noted(-100 * good(), -50 * good(), -20 * good(), good(), repeats=1) == []


def test_a_network_that_no_longer_sees_its_images_is_said():
    torch.manual_seed(0)
    flat = torch.zeros(40, 10) + 1e-4 * torch.randn(40, 10)
    flat[:, 3] += 1
    (message,) = noted(good(), flat, repeats=10)
    assert "collapsed after 20 batches: 100% of the images are put in one class" in message


def test_a_network_that_sees_its_images_again_by_batch_20_is_silent():
    """As deep normalised networks at high rates: for some batches all images have one answer, then they learn."""
    torch.manual_seed(0)
    flat = torch.zeros(40, 10) + 1e-4 * torch.randn(40, 10)
    flat[:, 3] += 1
    assert noted(good(), *(flat for _ in range(17)), *(0.02 * good() for _ in range(40))) == []


def test_one_class_at_the_start_is_no_collapse():
    """An untrained network may name one class for all images: its logits still differ from image to image."""
    torch.manual_seed(0)
    start = 0.05 * torch.randn(40, 10)
    start[:, 3] += 1
    assert noted(*(start for _ in range(30))) == []


def test_batches_of_one_class_are_no_collapse():
    first, steady = torch.randn(40, 10), torch.zeros(40, 10)
    steady[:, 0] = 5
    assert noted(first, steady, repeats=10, labels=torch.zeros(40, dtype=torch.long)) == []


def test_no_better_than_guessing_after_two_hundred_batches_is_said():
    (message,) = noted(torch.zeros(40, 10), repeats=300)
    assert "training has stalled after 200 batches" in message
    assert "too small or too large" in message


def test_steps_that_change_nothing_in_a_network_that_answers_all_images_alike_are_said():
    """Four convolutions without normalisation under small steps; not if the mean moves, or logits begin to differ."""
    torch.manual_seed(0)

    def batches(step, spread=lambda batch: 0.005, size=0.3):
        start = size * torch.randn(10)
        return [start * (1 + step * i) + spread(i) * torch.randn(40, 10) for i in range(30)]

    (message,) = noted(*batches(0.001))
    assert "training has not begun after 20 batches: logits spread by 0.00" in message
    assert "raise it" in message
    assert noted(*batches(0.1)) == []
    assert noted(*batches(0.001, lambda i: 0.005 * 1.1**i)) == []
    assert noted(*batches(0.001, lambda i: 0.1)) == [], "small steps alone are no failure, as in a warm-up"


def test_a_mean_that_moves_does_not_hide_a_training_that_has_not_begun():
    """Margins and mixtures move the mean of all logits fast; what counts is whether images begin to differ."""
    torch.manual_seed(0)
    start = 0.3 * torch.randn(10)

    def batches(step, spread):
        return [start * (1 + step * i) + spread * torch.randn(40, 10) for i in range(30)]

    (message,) = noted(*batches(0.01, 0.002))
    assert "training has not begun after 20 batches" in message
    assert noted(*batches(0.01, 0.025)) == []


@pytest.mark.parametrize(
    "make", [CrossEntropyLoss, HingeLoss, lambda: SumLoss({"a": CrossEntropyLoss(), "b": HingeLoss()})]
)
def test_every_loss_is_watched_in_a_plain_loop_and_warns_once(make):
    torch.manual_seed(0)
    model = Classifier(nn.Flatten(), nn.Linear(16, 10))
    images = torch.rand(40, 1, 4, 4)
    loss, optimizer = make(), torch.optim.SGD(model.parameters(), lr=1e4)

    def loop():
        for _ in range(20):
            optimizer.zero_grad()
            loss(model.outputs(images, loss.layers), LABELS).total.backward()
            optimizer.step()

    messages = said(loop)
    assert len(messages) == 1
    assert "training has exploded" in messages[0]


def test_the_warning_points_at_the_line_that_called_the_loss():
    loss = CrossEntropyLoss()
    with pytest.warns(TrainingWarning) as caught:
        loss(outputs(torch.full((40, 10), math.nan)), LABELS)
    assert caught[0].filename == __file__
    with pytest.warns(TrainingWarning, match="look like probabilities") as caught:
        CrossEntropyLoss()(outputs(torch.full((40, 10), 0.1)), LABELS)
    assert caught[0].filename == __file__


def test_evaluation_and_batches_without_gradients_are_not_watched():
    bad = outputs(torch.full((40, 10), math.nan))
    loss = CrossEntropyLoss()
    with torch.no_grad():
        loss(bad, LABELS)
    loss.eval()(bad, LABELS)


def test_the_watch_is_no_part_of_a_loss_that_is_saved():
    loss = LargeMarginLoss(("logits",))
    loss(outputs(good().requires_grad_()), LABELS)
    assert loss.state_dict() == {}
    assert repr(loss) == repr(LargeMarginLoss(("logits",)))
    for other in (copy.deepcopy(loss), pickle.loads(pickle.dumps(loss))):
        other(outputs(good().requires_grad_()), LABELS)


def test_fit_warns_as_a_plain_loop_does():
    train = cl.load_dataset("digits")
    torch.manual_seed(0)
    model = Classifier(nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU()), nn.Linear(32, 10))
    with pytest.warns(TrainingWarning, match="after"):
        cl.fit(
            model, cl.training.EndToEnd(), train, steps=20, optimizer=lambda p: torch.optim.SGD(p, lr=300.0)
        )


def test_a_part_of_a_sum_is_watched_where_it_is_called_alone():
    part, logits = CrossEntropyLoss(), torch.full((8, 3), torch.nan, requires_grad=True)
    with pytest.warns(TrainingWarning) as said:
        SumLoss({"one": part})(logits, torch.arange(8) % 3)
    assert len(said) == 1
    with pytest.warns(TrainingWarning, match="without numbers"):
        part(logits, torch.arange(8) % 3)


class Soft(Loss):
    """Cross-entropy with mixed labels, and its own size."""

    def forward(self, outputs, labels):
        return LossTerms({"soft": torch.nn.functional.cross_entropy(outputs.logits, labels)})


@pytest.mark.parametrize("size", [4, 32])
def test_small_batches_and_mixed_labels_are_watched_by_the_loss_alone(size):
    mixed = torch.full((size, 10), 0.1)
    loss, logits = Soft(), torch.randn(size, 10, requires_grad=True)
    for _ in range(9):
        loss(logits, mixed)
    with pytest.warns(TrainingWarning, match=r"exploded after 10 batches: the loss went from 2\.\d+ to"):
        loss(logits * 1e4, mixed)
    loss = Soft()
    for _ in range(4):
        loss(logits, mixed)
    with pytest.warns(TrainingWarning, match="lost its numbers after 5.*an image of an earlier batch"):
        loss(logits * torch.nan, mixed)


def test_large_logits_under_a_high_temperature_are_no_explosion():
    """Distillation divides logits by 100: cross-entropy at temperature 1 is large at first, and after it has learnt."""
    torch.manual_seed(0)
    hot = nn.functional.one_hot(LABELS, 10)
    start, guesses = 0.1 * torch.randn(40, 10), 20 * torch.randn(40, 10) + 8 * hot
    assert (guesses.argmax(dim=1) == LABELS).float().mean() < 0.25
    learnt = 300 * torch.randn(40, 10)
    learnt[torch.arange(30), LABELS[:30]] = 1000.0
    assert min(nn.functional.cross_entropy(z, LABELS) for z in (guesses, learnt)) > 20
    assert noted(start, guesses, learnt, temperature=100.0, repeats=90) == []


def test_falling_back_to_guessing_is_said_too():
    torch.manual_seed(0)
    (message,) = noted(good(), 0.01 * torch.randn(40, 10), repeats=250)
    assert "training has stalled after 400 batches" in message


def test_a_loss_that_grows_without_bound_is_said_though_most_answers_are_right():
    """As a mixture whose features move away faster than its means: accuracy alone shows nothing at first."""
    watch = TrainingWatch()
    torch.manual_seed(0)

    def run():
        for batch in range(15):
            watch.note(outputs(good()), LABELS, LossTerms({"likelihood": torch.tensor(8.0 * 2.0**batch)}))

    (message,) = said(run)
    assert "training has exploded after 10 batches: the loss went from 8 to 4.1e+03" in message


def test_a_sum_allows_what_its_parts_allow():
    margin = LargeMarginLoss()
    assert SumLoss({"a": CrossEntropyLoss(), "b": margin})._still == margin._still > CrossEntropyLoss._still


class Own(Loss):
    """A loss that understands its own labels."""

    def forward(self, outputs, labels):
        if isinstance(labels, tuple):
            one, other, share = labels
            entropy = nn.functional.cross_entropy
            mixed = share * entropy(outputs.logits, one) + (1 - share) * entropy(outputs.logits, other)
            return LossTerms({"mixed": mixed})
        if outputs.logits.ndim == 1:
            logits, wanted = outputs.logits, labels.float()
            return LossTerms({"bce": nn.functional.binary_cross_entropy_with_logits(logits, wanted)})
        return LossTerms(
            {"ce": nn.functional.cross_entropy(outputs.logits, labels.long(), ignore_index=-100)}
        )


@pytest.mark.parametrize(
    ("logits", "labels"),
    [
        (10 * good(), LABELS.int()),
        (10 * good(), LABELS.to(torch.uint8)),
        (10 * good(), (LABELS, LABELS, 0.3)),
        (torch.linspace(-1, 1, 40), torch.arange(40) > 20),
    ],
    ids=["int32", "uint8", "two labels", "one logit"],
)
def test_labels_that_a_loss_understands_are_no_error_of_the_watch(logits, labels):
    loss = Own()
    for _ in range(3):
        loss(logits.clone().requires_grad_(), labels)


def test_what_ignored_labels_say_is_not_counted():
    """Four in five images are not labelled, and those that are are right: nothing is stalled."""
    loss, labels = Own(), LABELS.masked_fill(torch.arange(40) % 5 > 0, -100)

    def run():
        for _ in range(301):
            loss((10 * good()).requires_grad_(), labels)

    assert said(run) == []


@pytest.mark.parametrize(
    "loss", [TripletLoss(cross_entropy_weight=0.0), CenterLoss(2, 10, cross_entropy_weight=0.0)]
)
def test_a_head_that_is_not_trained_is_not_judged(loss):
    """Its logits are those of the first weights, which say nothing."""
    features = nn.functional.one_hot(LABELS % 2, 2).float() + 0.1 * torch.rand(40, 2)
    logits = 5 * torch.randn(40, 10)

    def run():
        for _ in range(301):
            outputs = Outputs(features.clone().requires_grad_(), logits, nn.Identity())
            loss.after_step(outputs, LABELS) if loss(outputs, LABELS) else None

    assert said(run) == []


def test_a_loss_may_go_on_to_a_network_of_another_width():
    loss = GaussianMixtureLoss()
    for width in (6, 8):
        head = GaussianMixture(width, 10)
        for _ in range(30):
            features = torch.randn(40, width, requires_grad=True)
            loss(Outputs(features, head(features), head), LABELS)


def test_a_loss_that_saw_a_batch_on_one_device_goes_on_on_another():
    loss, logits = CrossEntropyLoss(), good().requires_grad_()
    loss(outputs(logits), LABELS)
    assert loss._watch._first_mean is not None
    loss._watch._first_mean = loss._watch._first_mean.to("meta")
    loss(outputs(logits), LABELS)
