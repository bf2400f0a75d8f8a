"""Learning to defer in one stage: every method on public data, and CIFAR-10 with simulated experts."""
