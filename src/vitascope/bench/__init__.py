"""Speed as a ratio against a peer in the same process: `timing`, then one subject a file."""
