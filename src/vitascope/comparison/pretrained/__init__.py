"""Which pretrained backbone for these images: `vitascope compare --pretrained`.

`candidates` (what is tried), `probing` (nearest neighbours and a linear classifier on frozen
features), `race` (the best ones fine-tuned), `cost` (what each takes here), `answer` (all together,
in a record).
"""
