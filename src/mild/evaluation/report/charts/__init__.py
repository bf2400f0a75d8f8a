"""Pictures by hand: each function gives one inline SVG, or a few in a row."""
