"""
# From a table to a router

Start with a table that has a query per row and the score and price of every expert.
Search for a router, judge it on rows that it has not seen, and save it.
"""

# %%
# ## The table
#
# The table that comes with mild has 1,500 questions. Two small language models and a rule-based
# solver answered each of them. `mild.read_outcomes` reads such a table from a file or a frame.

import tempfile

import matplotlib.pyplot as plt

import mild
from mild.datasets import load_outcomes

table = load_outcomes()
table

# %%
# Each expert is right on questions that the others get wrong. That is where a router can gain.

train, test = table.split(test_size=0.3, random_state=0)
train.describe()

# %%
# ## The search
#
# The loss of an answer is its error plus `price_weight` times its price in dollars: here, an error
# costs two cents. Leave out `search` for the usual, longer search.

search = mild.RouterCV(families="linear", alphas=[0.01], cv=3, n_jobs=1)
found = mild.tune(train, price_weight=50, search=search)
found

# %%
# ## New rows
#
# The verdict compares the router with the best single expert, with an interval.

judged = mild.evaluate(found.router, test)
judged

# %%
# Left: quality against dollars. Right: how often each expert is asked.

fig, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
judged.plot_frontier(left)
judged.plot_shares(right)
plt.show()

# %%
# ## Use it
#
# A saved router is a folder. The gateway (`mild-learn[gateway]`) serves the same folder with
# `mild serve`.

with tempfile.TemporaryDirectory() as folder:
    found.router.save(f"{folder}/router")
    router = mild.load(f"{folder}/router")
router.route(["What is 17 * 23?", "What is the capital of Peru?"])
