"""`agents doctor`: checks of the installation and its state, and the orphans that crashes left."""
