"""The paper's experiments with language models, on any table of outcomes with three of them.

Importing this package imports neither scikit-learn nor torch.
"""
