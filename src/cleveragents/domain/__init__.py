"""Pure decisions: values and state machines, with no I/O, clock, lock or framework."""
