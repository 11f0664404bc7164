"""Public test doubles: fakes that pass the contracts of the real things, a clock, fault points."""
