"""
# A cascade on answers

A cascade asks cheap experts first, reads their answers, and asks a better expert if they do not
agree. This example builds a table with answers, tunes a cascade, and shows what it saves.
"""

# %%
# ## Experts that answer
#
# The experts are three classifiers of handwritten digits. Two of them see a part of the image
# each, and the third sees all of it. They classify images that they
# were not trained on. The prices are made up.

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.datasets import load_digits
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import SVC
from sklearn.utils import shuffle

import mild

images, digits = shuffle(*load_digits(return_X_y=True), random_state=0)
column = np.arange(64) % 8  # of each pixel
experts = {
    "left": (KNeighborsClassifier(3), column < 5, 0.001),
    "right": (KNeighborsClassifier(3), column > 2, 0.001),
    "whole": (SVC(C=10), column >= 0, 0.010),
}
table = {"embedding": list(images[600:])}
for name, (model, pixels, dollars) in experts.items():
    answers = model.fit(images[:600, pixels], digits[:600]).predict(images[600:, pixels])
    table[f"answer__{name}"] = answers.astype(str)
    table[f"score__{name}"] = (answers == digits[600:]).astype(float)
    table[f"cost__{name}"] = dollars

# %%
# ## The table
#
# A table for cascades has columns `answer__<expert>` next to the scores. For language models, the
# gateway's `mild collect` writes such a table. `describe` says how often experts agree, and how often
# they are right then.

outcomes = mild.read_outcomes(pd.DataFrame(table))
train, test = outcomes.split(test_size=0.5, random_state=0)
train.describe()

# %%
# ## Tune
#
# With `cascade=True`, the search considers cascades as well as routers that ask one expert.

found = mild.tune(train, keep_quality=0.98, cascade=True)
found

# %%
# What more certainty of keeping 98 % of the quality would cost:

found.certainty

# %%
# ## New rows

judged = mild.evaluate(found.router, test)
judged

# %%
# The cascade is above the curve of the router without answers: it gives better answers for the same
# dollars.

judged.plot_frontier()
plt.show()

# %%
# ## One image
#
# Where the two cheap experts agree, their answer is accepted.

found.router.explain(test.vectors[0], answers={"left": "3", "right": "3"})
