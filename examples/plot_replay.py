"""
# Replay traffic with a new router

A gateway that explores asks every expert sometimes and writes down how likely its choice was.
From such a ledger, `mild_gateway.replay` estimates what another router would have cost on the same
traffic. This example needs the gateway: `pip install "mild-learn[gateway]"`.
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
import mild_gateway
from mild import metrics
from mild.datasets import load_outcomes
from mild_gateway.config import LedgerSettings
from mild_gateway.ledger import LedgerWriter, Record

train, traffic = load_outcomes().split(test_size=0.7, random_state=0)
serving = mild.fit(train[:100], price_weight=50)
new = mild.fit(train, price_weight=50)

# %%
# ## A ledger
#
# This loop does what a gateway with `explore = 0.5` does: it asks an expert at random half of the
# time and the router's choice otherwise. Only the outcome of the expert that was asked is recorded.

explore, names = 0.5, traffic.experts
rng = np.random.default_rng(0)
ledger = Path(tempfile.mkdtemp()) / "ledger.sqlite"
writer = LedgerWriter(LedgerSettings(ledger, keep_text=True), names)
writer.start()
feedback = []
for row, preferred in enumerate(serving.route(traffic.queries)):
    asked = rng.choice(names) if rng.random() < explore else preferred
    k, request = names.index(asked), f"request-{row}"
    chance = explore / len(names) + (1 - explore) * (asked == preferred)
    drawn = {"expert": asked, "chosen": asked, "propensity": chance}
    paid = {"price": traffic.prices[row, k], "text": traffic.queries[row]}
    writer.write(Record(request, time.time(), "alice", "mild", **drawn, **paid))
    feedback.append({"request_id": request, "score": traffic.scores[row, k]})
writer.close()

# %%
# ## Replay

found = mild_gateway.replay(ledger, new, feedback=pd.DataFrame(feedback), price_weight=50)
found

# %%
# ## Compare with the truth
#
# The table has the outcomes of all experts, so the true costs are known here. In a real ledger they
# are not.

costs = traffic.costs(price_weight=50)
fig, ax = plt.subplots(figsize=(6, 2.5), layout="constrained")
for place, (router, name) in enumerate([(serving, "serving"), (new, "doubly_robust")]):
    found_cost = found.estimates["cost"][name]
    true_cost = metrics.deferral_loss(costs, router.predict_texts(traffic.queries))
    ax.plot([found_cost["low"], found_cost["high"]], [place, place], color="C0")
    ax.plot(found_cost["mean"], place, "o", color="C0")
    ax.plot(true_cost, place, "x", color="C1", markersize=9)
ax.set(xlabel="mean loss", ylim=(-0.6, 1.6))
ax.set_yticks([0, 1], ["serving router", "new router"])
ax.legend(["95 % interval", "estimate", "truth"])
plt.show()
