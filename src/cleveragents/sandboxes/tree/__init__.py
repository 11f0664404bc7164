"""The files of a sandbox: walk, record and restore them while hostile processes may change them."""
