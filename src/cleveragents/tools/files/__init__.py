"""Files as tools use them: confined paths, exact edits and search."""
