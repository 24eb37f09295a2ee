"""Tanay and Griffin (2018), "A New Angle on L2 Regularization": the article's experiments, one study per file."""
