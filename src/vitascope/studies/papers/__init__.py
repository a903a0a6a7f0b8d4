"""The papers' tables and figures, a few related ones a file; pure definitions without torch."""
