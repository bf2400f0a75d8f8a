"""The paper's experiments: run, kept, and set beside its figures."""
