"""Which pretrained backbone for these images: `vitascope compare --pretrained`.

`candidates` (what is tried), `features` (frozen, cached), `probe` (nearest neighbours and a linear
classifier on them), `race` (the best ones fine-tuned), `cost` (what each takes here), `answer` (all
together, in a record). Used by `commands`.
"""
