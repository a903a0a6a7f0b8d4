"""Questions that join data, models, training and instruments; the papers' tables and figures."""
