"""From a table of outcomes to a router: tasks, fits, searches, targets and guarantees."""
