"""The paper's expert setups on scikit-learn's digits: ``python -m experiments.digits``."""
