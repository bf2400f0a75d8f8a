"""The gateway: a trained router in front of real endpoints, spoken to as one OpenAI-compatible model."""
