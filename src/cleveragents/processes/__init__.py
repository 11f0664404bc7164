"""Run programs below a guard, isolate them with bubblewrap, and end all their processes."""
