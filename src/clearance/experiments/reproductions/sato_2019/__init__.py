"""Sato et al. (2019), classifier anonymisation: claims, recipes for four datasets, and studies of its own."""
