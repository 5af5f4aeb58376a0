"""What groups of the new protocols share (KIP-848, KIP-932): state as a fold of records, epochs, targets, sessions."""
