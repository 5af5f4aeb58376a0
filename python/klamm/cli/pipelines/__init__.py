"""Commands that work on whole topics or logs with Spark."""
