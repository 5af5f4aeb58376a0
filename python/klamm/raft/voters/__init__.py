"""The quorum's members: the voter set, its history and changes of it, and majorities."""
