"""The verbs of the gateway."""
