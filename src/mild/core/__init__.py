"""The mathematics: costs, margins, surrogates, losses and decisions."""
