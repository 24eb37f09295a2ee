"""Experiments: recipes, names, and the runs that turn them into records."""
