"""Events: live delivery in this process, and the durable log that all processes share."""
