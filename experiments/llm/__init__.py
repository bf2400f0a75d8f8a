"""The paper's experiments with language models, on any table of outcomes of three of them."""
