"""The paper's guarantees in numbers: minimisers, moduli, Rademacher complexity and margin bounds."""
