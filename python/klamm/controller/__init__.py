"""The active controller: managers validate requests and return records; only replay changes state."""
