"""Claims of speed, one file each, measured as a ratio to a peer in the same run."""
