"""``mild reproduce ablation``"""

from __future__ import annotations

from mild.cli.options import AsJson
from mild.cli.reproduce.models import ModelSettings, run_models
from mild.cli.reproduce.settings import takes_settings

__all__ = ["ablation"]


@takes_settings
def ablation(
    *,
    settings: ModelSettings,
    as_json: AsJson = False,
) -> None:
    """The margins of MILD: uniform, from theory, tuned; errors plus what asking costs.

    Uniform margins are a third each; the theory's are used as they are; tuned ones are searched around the
    theory by cross-validation over their ratios. With --method grid they are searched on the paper's grid,
    which takes minutes per split.

    \b
    Example:
      mild reproduce ablation outcomes.parquet
      mild reproduce ablation outcomes.parquet --features vectors --vectors vectors.npy
    """
    run_models("ablation", settings, as_json)
