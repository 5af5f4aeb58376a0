"""Changes of configs, their checks, and effective values."""
