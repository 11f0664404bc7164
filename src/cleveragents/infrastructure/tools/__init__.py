"""Tools: what a plan can do to the files of its sandbox, and the confinement they work in."""
