"""The pytest plugin, the simulator and the checkers. Product code never imports it."""
