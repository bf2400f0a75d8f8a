"""Which expert is asked: the requested model, the router's decision, exploration, pinned sessions."""
