"""
# A frontier with targets

One router has many settings between the cheapest and the best answers. This example draws them, sets a
limit on dollars without a new search, and marks where the limits lead.
"""

# %%
# ## One search
#
# With `max_dollars`, the search finds the best quality for at most that many dollars per 1,000
# queries.

import matplotlib.pyplot as plt

import mild
from mild.datasets import load_outcomes

train, test = load_outcomes().split(test_size=0.3, random_state=0)
found = mild.tune(train, max_dollars=0.6)
found.verdict

# %%
# ## Other limits
#
# `with_target` changes the limit of a tuned router. It chooses among the settings that are saved with the
# router, so it needs no fit.

limits = {0.3: "C3", 0.6: "C4", 0.9: "C6"}  # dollars, and the colour of the picture
judged = {
    limit: mild.evaluate(found.router.with_target(max_dollars=limit), test)
    for limit in limits
}

# %%
# ## The picture
#
# Dotted lines are the limits. Crosses of the same colour are quality and dollars on new rows.

ax = judged[0.3].plot_frontier().ax_
for limit, colour in limits.items():
    router = judged[limit].to_frame().set_index("key").loc["router"]
    dollars, quality = router["dollars_per_1000"], router["accuracy"]
    print(f"at most ${limit}: ${dollars:.2f} per 1,000 queries, {quality:.1%} right")
    ax.axvline(limit, color=colour, linestyle=":")
    ax.plot(dollars, quality, "x", color=colour, markersize=9, label=f"at most ${limit}")
ax.legend(loc="center right")
plt.show()
