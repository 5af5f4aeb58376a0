"""Other projects' client suites, run against a klamm node."""
