"""Files and directories reached without following a link, and copies of them."""
