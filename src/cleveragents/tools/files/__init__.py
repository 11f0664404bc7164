"""The files of a sandbox for tools: confined paths, exact edits and search."""
