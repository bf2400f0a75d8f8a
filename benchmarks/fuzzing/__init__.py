"""What the gateway is sent by `benchmarks.fuzz`, and by the tests in small."""
