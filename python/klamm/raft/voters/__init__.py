"""Who is in the quorum: the voter set, its history and changes of it, and majorities."""
