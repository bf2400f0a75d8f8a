"""
# Replay traffic with a new router

A gateway that explores asks every expert sometimes and writes down how likely its choice was.
From such a ledger, `mild.replay` estimates what another router would have cost on the same traffic.
"""

# %%
# ## Two routers
#
# The serving router was fitted on 100 rows, the new one on 450.

import tempfile
import time
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import mild
from mild.data.datasets import load_outcomes
from mild.gateway.config import LedgerSettings
from mild.gateway.ledger import LedgerWriter, Record

train, traffic = load_outcomes().split(test_size=0.7, random_state=0)
serving = mild.fit(train.take(range(100)), price_weight=50)
new = mild.fit(train, price_weight=50)

# %%
# ## A ledger
#
# This loop does what a gateway with `explore = 0.5` does: it asks an expert at random half of the
# time and the router's choice otherwise. Only the outcome of the asked expert is written down.

explore, names = 0.5, traffic.expert_names
rng = np.random.default_rng(0)
ledger = Path(tempfile.mkdtemp()) / "ledger.sqlite"
writer = LedgerWriter(LedgerSettings(ledger, keep_text=True), names)
writer.start()
feedback = []
for row, preferred in enumerate(serving.route(traffic.queries)):
    asked = rng.choice(names) if rng.random() < explore else preferred
    k = names.index(asked)
    writer.write(
        Record(
            f"request-{row}", time.time(), "alice", "mild", expert=asked, chosen=asked,
            propensity=explore / len(names) + (1 - explore) * (asked == preferred),
            price=traffic.prices[row, k], text=traffic.queries[row],
        )
    )  # fmt: skip
    feedback.append({"request_id": f"request-{row}", "score": traffic.scores[row, k]})
writer.close()

# %%
# ## Replay

found = mild.replay(ledger, new, feedback=pd.DataFrame(feedback), price_weight=50)
found

# %%
# ## Compare with the truth
#
# The table has the outcomes of all experts, so that the true costs are known here. A real ledger
# does not have them.

costs = traffic.costs(price_weight=50)
truth = [
    mild.deferral_loss(costs, router.predict_texts(traffic.queries)) for router in (serving, new)
]
estimates = [found.estimates["cost"][name] for name in ("serving", "doubly_robust")]
fig, ax = plt.subplots(figsize=(6, 2.5), layout="constrained")
for place, (one, true) in enumerate(zip(estimates, truth, strict=True)):
    ax.plot([one["low"], one["high"]], [place, place], color="C0", linewidth=2)
    ax.plot(one["mean"], place, "o", color="C0", label=None if place else "estimate, 95 % interval")
    ax.plot(true, place, "x", color="C1", markersize=9, label=None if place else "truth")
ax.set(xlabel="mean loss", ylim=(-0.6, 1.6))
ax.set_yticks([0, 1], ["serving router", "new router"])
ax.legend()
plt.show()
