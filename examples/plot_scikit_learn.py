"""
# A scikit-learn pipeline

Routers are scikit-learn estimators: `fit(X, costs)` takes the cost of every expert as `y`. Text
features are transformers. Both work in `Pipeline`, `GridSearchCV` and `cross_val_score`.
"""

# %%
# ## Queries and costs
#
# `X` are texts. The costs have a row per query and a column per expert.

import matplotlib.pyplot as plt
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

import mild
from mild import metrics
from mild.datasets import load_outcomes
from mild.features import HashingFeatures

train, test = load_outcomes()[:900].split(test_size=0.3, random_state=0)
costs = train.costs(price_weight=50)
costs.shape

# %%
# ## Search
#
# `RouterCV` chooses its own strength and margins. The grid chooses how many directions the text
# features have. The score of a router is minus its mean cost.

pipeline = make_pipeline(HashingFeatures(), mild.RouterCV(alphas=[0.01], cv=3))
dimensions = [8, 16, 32, 64]
search = GridSearchCV(pipeline, {"hashingfeatures__n_components": dimensions}, cv=3)
search.fit(train.queries, costs)
search

# %%
# ## Compare with the best single expert
#
# The line is the cost of always asking one expert.

results = search.cv_results_
fig, ax = plt.subplots(layout="constrained")
ax.errorbar(
    dimensions,
    -results["mean_test_score"],
    results["std_test_score"],
    marker="o",
    label="router",
)
ax.axhline(
    costs.mean(axis=0).min(), color="grey", linestyle=":", label="best single expert"
)
ax.set(xlabel="directions of the text features", ylabel="mean cost")
ax.set_xscale("log", base=2)
ax.set_xticks(dimensions, dimensions)
ax.legend()
plt.show()

# %%
# ## New rows
#
# `mild.save(search.best_estimator_, "router", table=train, price_weight=50)` saves the pipeline as
# a router that `mild.load` reads and the gateway serves.

chosen = search.predict(test.queries)
test_costs = test.costs(price_weight=50)
{
    "router": round(metrics.deferral_loss(test_costs, chosen), 3),
    "always rules": round(float(test_costs[:, 2].mean()), 3),
}
