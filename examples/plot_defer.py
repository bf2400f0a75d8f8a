"""
# Learning to defer in one stage

A classifier of digits may ask an expert who knows the digits 0 to 4 and guesses the others. One
network learns the classes and when to ask.
"""

# %%
# ## Data
#
# Four principal components of each digit are all the classifier sees. The expert's answers are
# simulated: `mild.datasets` has more such experts.

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.model_selection import train_test_split

from mild.datasets import expert_on_first_classes
from mild.deferral import DeferralClassifier
from mild.evaluation import CoverageCurveDisplay, ReliabilityDisplay
from mild.metrics import deferral_summary

pixels, y = load_digits(return_X_y=True)
X = PCA(4, whiten=True, random_state=0).fit_transform(pixels)
expert = expert_on_first_classes(y, n_known=5, n_classes=10, random_state=0)
X, X_test, y, y_test, expert, expert_test = train_test_split(
    X, y, expert, test_size=0.5, random_state=0
)

# %%
# ## Fit
#
# The answers of the expert are part of the training data, not of the features. "ova" and
# "cross_entropy" learn the classes and the decision together. "confidence" learns the classes, and
# asks the expert where the classifier is less sure than the expert is right on average.

systems = {}
for loss in ("ova", "cross_entropy", "confidence"):
    system = DeferralClassifier(loss, body="mlp", lr=0.01, random_state=0)
    systems[loss] = system.fit(X, y, experts=expert)

# %%
# ## Four numbers
#
# Accuracy of the system, the share of rows that the classifier keeps, its accuracy there, and that
# of the expert on the others.

for loss, system in systems.items():
    numbers = deferral_summary(
        y_test, system.predict(X_test), system.defer(X_test), expert_test
    )
    print(
        f"{loss:15} system {numbers.system_accuracy:.3f}, coverage {numbers.coverage:.3f}, "
        f"kept {numbers.classifier_accuracy:.3f}, deferred {numbers.expert_accuracy:.3f}"
    )

# %%
# ## Accuracy over coverage
#
# Each curve starts with the expert alone, at coverage 0, and ends with the classifier alone. The
# dot is where the system works. Bands are bootstrap intervals over the test rows.

_, ax = plt.subplots()
for system in systems.values():
    CoverageCurveDisplay.from_estimator(system, X_test, y_test, experts=expert_test, ax=ax)

# %%
# ## Is the expert right?
#
# One-versus-all estimates the probability that the expert is right. That of cross-entropy, read from
# its scores, is less reliable, as its authors' successors found.

_, ax = plt.subplots()
for loss in ("ova", "cross_entropy"):
    ReliabilityDisplay.from_estimator(
        systems[loss], X_test, y_test, experts=expert_test, ax=ax
    )
