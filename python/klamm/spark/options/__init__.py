"""The options of `format("klamm")`, and the errors of invalid ones."""
