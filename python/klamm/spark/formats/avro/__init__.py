"""Avro: schemas, what they are in Spark, and programs that read what was written with one as another."""
