"""The worker: claims jobs, runs attempts, keeps leases, takes over from the dead."""
