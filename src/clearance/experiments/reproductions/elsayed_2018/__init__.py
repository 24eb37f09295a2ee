"""Large Margin Deep Networks for Classification (Elsayed et al., NeurIPS 2018): recipes, claims, studies."""
