"""The history of one partition, with causes."""
