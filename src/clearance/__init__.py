"""Clearance: how clearly an image classifier separates what it sees.

An objective turns a batch's outputs and labels into a loss; a regime decides which parameters that
loss may move, and which head is in use. An audit turns a trained classifier into measurements and
exhibits; a report shows only what is stored.
"""

__version__ = "0.1.0"
