"""How a node reaches the active controller, and what it registers there."""
