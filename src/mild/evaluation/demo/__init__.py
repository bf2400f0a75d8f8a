"""``mild demo``: the paper's expert setups on the digits, with intervals and figures."""
