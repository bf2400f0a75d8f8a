"""The paper's image experiments: run, kept, and set beside its figures."""
