"""Other people's client suites, run against a klamm node."""
