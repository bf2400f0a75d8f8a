"""Every decision, in SQLite: written beside the responses, never in their way."""

from mild.gateway.ledger.reading import ledger_reader, read_blocks, read_ledger
from mild.gateway.ledger.records import Record
from mild.gateway.ledger.writer import LedgerWriter

__all__ = ["LedgerWriter", "Record", "ledger_reader", "read_blocks", "read_ledger"]
