"""Roles and their transitions: campaigns, votes, and evidence of a leader's crash."""
