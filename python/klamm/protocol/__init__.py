"""Between kio's message types and our value types; the only importer of kio."""
