"""The requests of `test_every_version`, by what they are about."""
