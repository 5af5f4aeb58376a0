"""The options of `format("klamm")`, and what is said of those that are wrong."""
