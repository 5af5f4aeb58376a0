"""Who leads a partition: elections by the clock, on request, and as brokers come and go."""
