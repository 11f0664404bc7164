"""Shell commands: bounded, isolated where the machine allows it, and gone when their call is over."""
