"""The composition root: builds the object graph of a process, once."""
