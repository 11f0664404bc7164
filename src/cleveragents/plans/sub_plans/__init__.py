"""Sub-plans: spawned by dependency, run in parallel, merged into their parent."""
