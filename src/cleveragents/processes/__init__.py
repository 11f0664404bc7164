"""Programs: run below a guard, isolated by bubblewrap, and ended with everything they started."""
