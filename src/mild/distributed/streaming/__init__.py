"""Lines of text in, decisions out."""
