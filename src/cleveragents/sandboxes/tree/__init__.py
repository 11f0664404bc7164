"""The files of a sandbox: walked, recorded and restored while hostile processes may change them."""
