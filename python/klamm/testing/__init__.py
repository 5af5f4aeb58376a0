"""The pytest plugin and the checkers. Product code never imports it."""
