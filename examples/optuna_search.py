"""A search with Optuna over learning rate and margin, which ends bad trials early.

    pip install optuna
    python examples/optuna_search.py

``on_epoch`` of ``cl.fit`` gets the row of every epoch. A trial is compared with others by its error on a fifth of the
training images, and pruned if that is worse than their median; the test images are used once, by the best.
"""

from collections.abc import Mapping
from functools import partial

import optuna
import torch
from torch import nn

import clearance as cl

TRAIN, VALIDATION = cl.load_dataset("digits").split(0.8, seed=0)


def trained(
    learning_rate: float, gamma: float, train: cl.ImageSet, epochs: int, trial: optuna.Trial | None = None
) -> tuple[cl.Classifier, float]:
    """A network trained with a margin of `gamma` at the images, and its validation error."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU())
    model = cl.Classifier(network, nn.Linear(64, 10), mean=0.3, std=0.4)
    way = cl.training.EndToEnd(cl.losses.LargeMarginLoss(("input",), gamma=gamma))

    def on_epoch(row: Mapping[str, float]) -> None:
        if trial is not None:
            trial.report(row["validation_error"], int(row["epoch"]))
            if trial.should_prune():
                raise optuna.TrialPruned

    optimizer = partial(torch.optim.SGD, lr=learning_rate, momentum=0.9)
    result = cl.fit(
        model,
        way,
        train,
        epochs=epochs,
        batch_size=32,
        optimizer=optimizer,
        validation=VALIDATION,
        on_epoch=on_epoch,
    )
    return model, result.history[-1]["validation_error"]


def main(trials: int = 12, epochs: int = 10) -> optuna.Study:
    """Search, train the best again, and print its test error."""

    def objective(trial: optuna.Trial) -> float:
        rate = trial.suggest_float("learning_rate", 1e-4, 0.3, log=True)
        gamma = trial.suggest_float("gamma", 0.1, 3.0)
        return trained(rate, gamma, TRAIN, epochs, trial)[1]

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    pruner = optuna.pruners.MedianPruner(n_startup_trials=3, n_warmup_steps=1)
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=0), pruner=pruner)
    study.optimize(objective, n_trials=trials)
    pruned = sum(one.state is optuna.trial.TrialState.PRUNED for one in study.trials)
    print(
        f"{trials} trials, {pruned} pruned; best: {study.best_params}, validation error {study.best_value:.3f}"
    )

    best, test = study.best_params, cl.load_dataset("digits", split="test")
    model, _ = trained(best["learning_rate"], best["gamma"], TRAIN, epochs)
    with torch.no_grad():
        wrong = (model(test.images).argmax(dim=1) != test.labels).double().mean()
    print(f"test error: {100 * float(wrong):.1f} %")
    return study


if __name__ == "__main__":
    main()
