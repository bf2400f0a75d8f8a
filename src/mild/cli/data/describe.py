"""``mild data describe``"""

from __future__ import annotations

from mild.cli.console import emit
from mild.cli.data import options as o
from mild.cli.options import AsJson

__all__ = ["describe"]


def describe(
    file: o.Table,
    form: o.Form = None,
    query: o.Query = None,
    choices: o.Choices = True,
    experts: o.Experts = None,
    scores: o.Scores = None,
    prices: o.Prices = None,
    latencies: o.Latencies = None,
    vectors: o.Vectors = None,
    beta: o.Beta = None,
    price_weight: o.PriceWeight = None,
    latency_weight: o.LatencyWeight = None,
    as_json: AsJson = False,
) -> None:
    """Say what is in a table of outcomes, and whether there is anything to gain by routing.

    Each expert's accuracy, price and latency; how often it is the cheapest that is right, and the only
    one; the best constant, the oracle, and what lies between them; what is odd about the table. The cost
    is an error, plus --beta of the expert, plus dollars and seconds by their weights.

    \b
    Example:
      mild data describe log.parquet
      mild data describe log.parquet --experts 0.5B,1.5B,7B --beta 7B=1.0,1.5B=0.6,0.5B=0.1
      mild data describe log.csv --price-weight 50 --latency-weight 0.01
      mild data describe log.csv --query task --scores "acc_*" --prices "usd_*"
    """
    from mild.cli.data.description import print_outcomes
    from mild.data import (
        cost_words,
        describe_outcomes,
        expert_betas,
        outcome_costs,
        read_outcomes,
    )

    table = read_outcomes(
        file,
        form=form,
        query=query,
        experts=experts,
        scores=scores,
        prices=prices,
        latencies=latencies,
        vectors=vectors,
        choices=choices,
    )
    betas = o.beta_value(beta)
    costs = outcome_costs(
        table, beta=betas, price_weight=price_weight, latency_weight=latency_weight
    )
    words = cost_words(table, beta=betas, price_weight=price_weight, latency_weight=latency_weight)
    report = {
        "file": file,
        "fingerprint": table.fingerprint(),
        "cost": {
            "words": words,
            "beta": dict(zip(table.expert_names, expert_betas(table, betas), strict=True)),
            "price_weight": price_weight,
            "latency_weight": latency_weight,
        },
        **describe_outcomes(table, costs),
    }
    emit(report, as_json, lambda: print_outcomes(report))
