"""Overlapping classes, a classifier of their pixels, and the audit of its heads' ways that tests share."""

import torch
from torch import nn

from audit_cases import Times
from clearance.audits import Geodesic
from clearance.data.synthetic import GaussianClasses
from clearance.models import Classifier

WORLD = GaussianClasses(class_count=3, shape=(1, 4, 4), separation=2.0, noise=0.05)
SEED = 3
AUDIT = Geodesic(segments=5, repetitions=3, hidden=(8, 7))


def pixels(factor=1.0):
    """A classifier whose features are the pixels, so that everything about them is known."""
    torch.manual_seed(0)
    return Classifier(nn.Sequential(nn.Flatten(), Times(factor)), nn.Linear(16, 3), mean=0.5, std=0.05)


def by_key(findings):
    return {(m.name, *m.context.values()): m for m in findings.measurements}
