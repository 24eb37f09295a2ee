"""What the studies of all papers share.

``catalogue`` names papers, recipes and studies; ``claims`` reads what a paper claims and ``judging`` says what became
of it; ``study`` is what is asked of a study and ``tasks`` runs its pieces side by side; ``ledger`` writes what was
found, and ``verify`` recomputes it; ``reproduce`` runs one paper, or one study of it; ``rate_search`` chooses learning
rates; ``figures`` draws in the form of a paper.
"""
