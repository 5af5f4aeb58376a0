"""Group coordination: members, generations, committed offsets."""
