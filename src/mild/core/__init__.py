"""The mathematics: costs, margins, surrogates, losses, decisions and bounds."""
