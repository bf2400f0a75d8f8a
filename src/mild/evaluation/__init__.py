"""Compare routers, judge one, estimate from logs, and write the report."""
