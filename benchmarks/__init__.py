"""ASV benchmarks: `track_*_ratio` compares us with a floor or a peer in the same run (lower is better)."""
