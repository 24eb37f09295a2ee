"""Extractors: networks that turn images into features, one a file."""
