"""The clients' side: connections, endpoints, completions, worker processes."""
