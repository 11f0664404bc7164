"""The worker: claims jobs, runs attempts, keeps leases, and takes over from dead workers."""
