"""Any backbone as a feature pyramid, under a segmentation head."""
