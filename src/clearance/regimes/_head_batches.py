"""What weak heads are trained on: features of a class-balanced batch for each head."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from clearance.data.image_set import ImageSet
from clearance.models.classifier import Classifier
from clearance.regimes._class_balanced import ClassBalancedDraws
from clearance.regimes._feature_pool import FeaturePool
from clearance.regimes._regime import Generators
from clearance.regimes.batch_norm import BatchNormPolicy, head_batch_statistics


class HeadBatches:
    """Draws of detached features in at least float32, by a forward pass of their own or from the pool."""

    def __init__(
        self, model: Classifier, data: ImageSet, generators: Generators, policy: BatchNormPolicy, pool: int
    ) -> None:
        self.model, self.data, self.generators, self.policy = model, data, generators, policy
        self.images = ClassBalancedDraws(data.labels, data.class_count)
        self.pool = FeaturePool(pool, data.class_count)

    @torch.no_grad()
    def draw(self, heads: int, per_class: int) -> tuple[Tensor, Tensor]:
        """Features (K, n, D) and labels (K, n) of one class-balanced batch for each head."""
        stream = self.generators["head_batch"]
        if self.pool.holds_every_class:
            features, labels = self.pool.draw(heads, per_class, stream)
        else:
            rows = self.images.draw(heads, per_class, stream)
            images, labels = self.data.batch(rows.flatten(), self.generators["head_augmentation"])
            with head_batch_statistics(self.model.extractor, self.policy):
                features = self.model.features(images)
            features, labels = features.view(*rows.shape, -1), labels.view(rows.shape)
        return features if features.dtype.itemsize >= 4 else features.float(), labels

    def remember(self, features: Tensor, labels: Tensor) -> None:
        """Offer the features of a batch that the extractor was moved on."""
        self.pool.add(features, labels)

    def state_dict(self) -> dict[str, Any]:
        """What the pool holds."""
        return self.pool.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue with the same pool."""
        self.pool.load_state_dict(state, self.data.images.device)
