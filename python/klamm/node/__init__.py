"""Configuration, storage format, and the assembling of a node from its parts."""
