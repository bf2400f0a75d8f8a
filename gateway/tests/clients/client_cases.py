"""What the clients ask; the first is answered by the stand-in `rules`, the second by `gemma3`."""

SUM = "What is 17 * 23?"
FACT = "What is the capital of France?"
WEATHER = "How is the weather?"
