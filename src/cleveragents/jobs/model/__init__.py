"""Jobs as a state machine: data and rules, no I/O."""
