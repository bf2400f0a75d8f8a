"""From a gateway's ledger and feedback to a better router."""
