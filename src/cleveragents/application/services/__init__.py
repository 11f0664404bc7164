"""Import paths of the published API. The code is in other packages."""
