"""The requests of `test_every_version`, by subject."""
