"""Instruments that remove a part and measure the accuracy lost: lesions and masking."""
