"""What a search gives, and a router from logged answers; each name once."""

from mild.tuning.logged_outcomes import CostWeights as CostWeights
from mild.tuning.logged_outcomes import LoggedOutcomes as LoggedOutcomes
from mild.tuning.logged_outcomes import TableRows as TableRows
from mild.tuning.logged_outcomes import dropped_mix as dropped_mix
from mild.tuning.logged_outcomes import fit_candidate as fit_candidate
from mild.tuning.logged_outcomes import is_current as is_current
from mild.tuning.result import TuneResult as TuneResult
