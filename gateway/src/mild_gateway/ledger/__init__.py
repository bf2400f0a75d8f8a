"""One row per request, written by a thread of its own; responses never wait for it."""

from mild_gateway.ledger.reading import ledger_reader, read_blocks, read_ledger
from mild_gateway.ledger.records import Record
from mild_gateway.ledger.writer import LedgerWriter

__all__ = ["LedgerWriter", "Record", "ledger_reader", "read_blocks", "read_ledger"]
