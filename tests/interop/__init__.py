"""klamm together with Apache Kafka 4.3.1."""
