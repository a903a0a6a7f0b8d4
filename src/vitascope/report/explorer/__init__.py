"""The explorer on a page: attention of every patch, without a server."""
