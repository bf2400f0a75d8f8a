"""The numbers behind each part of a report, JSON-ready."""
