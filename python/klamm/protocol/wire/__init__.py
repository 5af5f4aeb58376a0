"""From bytes to values and back: schemas, kio's classes, and responses to requests that failed as a whole."""
