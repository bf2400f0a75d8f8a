"""The experts' side: connections, attempts, breakers, capacity, server-sent events."""
