"""The clients' side: the wire, the endpoints, worker processes and their supervisor."""
