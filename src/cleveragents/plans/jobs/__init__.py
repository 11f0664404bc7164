"""The jobs that run plans: names, queues and lanes."""
