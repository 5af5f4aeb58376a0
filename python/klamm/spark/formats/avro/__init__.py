"""Avro: schemas, their Spark types, and programs that read values of one schema as another."""
