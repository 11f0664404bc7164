"""The `agents` command. Modules are imported when their command runs, so that `--help` is quick."""
