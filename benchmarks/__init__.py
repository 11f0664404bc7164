"""ASV benchmarks. `track_*_ratio` compares CleverAgents with a floor or a peer in the same run; lower is
better.
"""
