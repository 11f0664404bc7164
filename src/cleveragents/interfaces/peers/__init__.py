"""For other agents: how they hand work over to us, by the protocols that they speak."""
