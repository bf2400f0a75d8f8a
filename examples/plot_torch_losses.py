"""
# The losses in a torch loop

`mild.nn` has the losses as torch functions. This example trains a small network that chooses an
expert for each digit, with three of the losses.
"""

# %%
# ## Data
#
# Each expert knows some of the digits, and guesses the others at random. The first knows nine of
# the ten digits: a router can ignore the second expert and still be right most of the time.

import matplotlib.pyplot as plt
import torch

from mild import nn
from mild.datasets import digits_scenario

data = digits_scenario("severe", random_state=0)
X, costs = (torch.tensor(one).float() for one in (data.train.X, data.train.costs))
X_test, costs_test = (torch.tensor(one).float() for one in (data.test.X, data.test.costs))
data.train.expert_names

# %%
# ## Rewards and margins
#
# Rewards turn costs into weights. Margins follow from the reward that each expert can earn: an
# expert with little reward gets a small margin, and its samples a steep loss.

rewards = nn.rewards(costs)
margins = nn.theory_margins(nn.expert_mass(costs))
margins

# %%
# ## Train
#
# Losses are unreduced, one value per sample. The decision depends on the margins of the loss.


def train(loss, margins=None, steps=200):
    """Step, share of the second expert and mean cost on the test half."""
    torch.manual_seed(0)
    layers = torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 2)
    network = torch.nn.Sequential(*layers)
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
    history = []
    for step in range(1, steps + 1):
        optimizer.zero_grad()
        loss(network(X)).mean().backward()
        optimizer.step()
        if step % 10 == 0:
            with torch.no_grad():
                chosen = nn.decide(network(X_test), margins)
            cost = nn.deferral_loss(costs_test, chosen)
            history.append((step, chosen.float().mean(), cost))
    return torch.tensor(history)


histories = {
    "TDEF": train(lambda scores: nn.tdef_loss(scores, costs, cost_scale=1.0)),
    "MILD, margins 1": train(lambda scores: nn.mild_loss(scores, rewards)),
    "MILD, margins of the theory": train(
        lambda scores: nn.mild_loss(scores, rewards, margins), margins
    ),
}

# %%
# ## Result
#
# One digit in ten belongs to the second expert. All three losses find it on these data. Which
# margins are best depends on the data: `mild.tune` and `RouterCV` choose them by cross-validation.

best = costs_test.argmin(dim=1).float().mean()
fig, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
for name, (step, share, cost) in ((name, one.T) for name, one in histories.items()):
    left.plot(step, share, label=name)
    right.plot(step, cost, label=name)
left.axhline(best, color="grey", linestyle=":", label="perfect choice")
left.set(xlabel="step", ylabel="share of the second expert")
right.set(xlabel="step", ylabel="mean cost on the test half")
left.legend()
plt.show()
