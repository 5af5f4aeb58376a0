"""Roles and the ways between them: campaigns, votes, and evidence that a leader is gone."""
