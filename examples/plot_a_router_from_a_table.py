"""
# From a table to a router

Start with a table that has a query per row and the score and price of every expert.
Search for a router, judge it on rows that it has not seen, change its budget, and save it.
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
# With `max_dollars`, the search finds the best quality for at most that many dollars per 1,000
# queries.

found = mild.tune(train, max_dollars=0.6)
found

# %%
# ## New rows
#
# The verdict compares the router with the best single expert, with an interval.

judged = mild.evaluate(found.router, test)
judged

# %%
# ## Other limits
#
# `with_target` changes the limit of a tuned router. It chooses among the settings that are saved with the
# router, so it needs no fit. Dotted lines are the limits; crosses of the same colour are quality and
# dollars on new rows. Right: how often each expert is asked.

fig, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
judged.plot_frontier(left)
judged.plot_shares(right)
for limit, colour in {0.3: "C3", 0.6: "C4", 0.9: "C6"}.items():
    limited = mild.evaluate(found.router.with_target(max_dollars=limit), test)
    router = limited.to_frame().set_index("key").loc["router"]
    dollars, quality = router["dollars_per_1000"], router["accuracy"]
    print(f"at most ${limit}: ${dollars:.2f} per 1,000 queries, {quality:.1%} right")
    left.axvline(limit, color=colour, linestyle=":")
    left.plot(dollars, quality, "x", color=colour, markersize=9)
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
