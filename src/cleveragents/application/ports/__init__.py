"""One Protocol per outside thing; its docstring is the contract that every adapter passes."""
