"""The jobs that run plans: names, queues and concurrency limits."""
