"""Forming a quorum anew from what is left of a lost majority: what there is, what to do, and doing it."""
