"""Diagnoses a quorum: collects facts from nodes and directories, and derives findings from them."""
