"""How a node finds the active controller, and the requests that it sends there."""
