"""Routers that are neural networks. Importing this does not import torch; fitting does."""

from mild.routers.neural.router import NeuralRouter

__all__ = ["NeuralRouter"]
