"""Jobs of shared queues, handed out by Temporal to workers anywhere."""
