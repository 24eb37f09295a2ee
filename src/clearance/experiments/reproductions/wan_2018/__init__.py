"""Rethinking Feature Distribution for Loss Functions (L-GM; Wan et al., CVPR 2018): recipes, claims, studies."""
