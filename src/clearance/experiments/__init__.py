"""Experiments: recipes, the catalogue of names, and the runs that turn them into records."""
