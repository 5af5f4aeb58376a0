"""Coordinators: state machines over the partitions of an internal topic, and the runtime that they share."""
