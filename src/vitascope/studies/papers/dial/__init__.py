"""Our own questions about locality, asked as the papers' are: the dial, and the grid."""
