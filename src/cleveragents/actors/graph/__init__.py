"""The LangGraph side of actors: compiler, nodes, state and checkpoints."""
