"""Records become tables, figures and pages; no torch, no model."""
