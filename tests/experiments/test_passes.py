"""How often images go through a network in an audit: a large network's time goes there."""

import torch
from torch import nn

import clearance as cl
from clearance.experiments.audit_plan import MODEL_AUDITS

OTHER_IMAGES = (
    "preprocessing",
    "common_corruptions",
    "minimal_perturbation",
)  # which make images of their own


class Counting(nn.Module):
    """An extractor that counts the images that it gets."""

    def __init__(self):
        super().__init__()
        self.images = 0

    def forward(self, images):
        self.images += len(images)
        return images.flatten(1)


def passes(audits):
    train, test = (cl.load_dataset("digits", split) for split in ("train", "test"))
    torch.manual_seed(0)
    extractor = Counting()
    model = cl.Classifier(extractor, nn.Linear(64, 10))
    cl.audit(model, train=train, test=test, unknown=test.images.flip(2)[:100], audits=audits)
    return extractor.images, len(train) + len(test) + 100


def test_every_image_goes_through_once_for_all_audits_of_the_same_images():
    audits = [name for name in MODEL_AUDITS if name not in OTHER_IMAGES]
    images, there = passes(audits)
    assert there <= images <= there + 10  # a few more where the model is tried first


def test_corruptions_take_their_subsample_alone():
    images, there = passes(["accuracy", "out_of_distribution", "common_corruptions"])
    assert images <= there + 10 + 200 * 46
