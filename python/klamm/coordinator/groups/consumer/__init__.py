"""Consumer groups (KIP-848): the coordinator computes the assignment, and each member moves to it on its own."""
