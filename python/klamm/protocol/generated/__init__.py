"""What tools/ write from the engine's descriptions."""
