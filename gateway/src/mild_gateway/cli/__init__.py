"""The commands that mild-gateway adds to ``mild``, one file each; pyproject.toml names them."""
