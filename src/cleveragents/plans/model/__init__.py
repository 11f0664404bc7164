"""Plans, strategies and corrections as state machines: data and rules, no I/O."""
