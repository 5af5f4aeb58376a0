"""Kafka Streams and Kafka Connect of Apache Kafka 4.3.1 on three klamm brokers that are killed while they work."""
