"""How instruments run: one pass over batches, shared by all instruments that can stream."""
