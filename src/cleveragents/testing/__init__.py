"""Public test doubles: a clock, fault points, fakes that pass the contracts, a scripted model server."""
