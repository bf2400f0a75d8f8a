"""Modules whose examples pytest must not collect where what they need is missing."""

import importlib.util

# Triton comes with torch's CUDA builds alone.
FUSED = ["src/mild/reproduce/images/kernels.py", "src/mild/reproduce/images/fused.py"]
collect_ignore = [] if importlib.util.find_spec("triton") else FUSED
