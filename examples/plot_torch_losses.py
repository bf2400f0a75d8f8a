"""
# The losses in a torch loop

`mild.nn` has the losses as torch functions. This example trains a small network that chooses an
expert for each digit, once with a plain loss and once with margins.
"""

# %%
# ## Data
#
# Each expert knows some of the digits, and answers the others at random. The first knows nine of
# ten digits: a router can ignore the second one and still be right most of the time.

import matplotlib.pyplot as plt
import torch

from mild import nn
from mild.data.datasets import digits_scenario

data = digits_scenario("severe", random_state=0)
X, costs = torch.tensor(data.train.X).float(), torch.tensor(data.train.costs).float()
X_test, costs_test = torch.tensor(data.test.X).float(), torch.tensor(data.test.costs).float()
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
# Losses are unreduced, one value per sample. The loop is that of any classifier.


def train(margins, steps=150):
    """Share of the test digits that go to the second expert, and the mean cost, after every ten steps."""
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 2))
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
    history = []
    for step in range(steps):
        optimizer.zero_grad()
        nn.mild_loss(network(X), rewards, margins).mean().backward()
        optimizer.step()
        if step % 10 == 9:
            with torch.no_grad():
                chosen = nn.decide(network(X_test), margins)
            share, cost = chosen.float().mean(), nn.deferral_loss(costs_test, chosen)
            history.append((step + 1, share, cost))
    return torch.tensor(history)


histories = {"margins 1": train(None), "margins of the theory": train(margins)}

# %%
# ## Result
#
# One digit in ten belongs to the second expert.

fig, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
for name, history in histories.items():
    left.plot(history[:, 0], history[:, 1], label=name)
    right.plot(history[:, 0], history[:, 2], label=name)
left.axhline(costs_test.argmin(dim=1).float().mean(), color="grey", linestyle=":", label="best")
left.set(xlabel="step", ylabel="share of the second expert")
right.set(xlabel="step", ylabel="mean cost on the test half")
left.legend()
plt.show()
