"""What a search gives."""

from mild.tuning.result import TuneResult as TuneResult
