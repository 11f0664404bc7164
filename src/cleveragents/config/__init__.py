"""Settings, YAML files, entry points and logging.

Each value says where it comes from; all mistakes of all files are reported at once.
"""
