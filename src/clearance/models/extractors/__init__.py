"""Extractors: networks that turn images into features."""

from clearance.models.extractors.small_cnn import small_cnn as small_cnn

__all__ = ["small_cnn"]
