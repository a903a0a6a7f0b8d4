"""How instruments run: one pass over the batches, shared by several instruments.

`one_pass` is the loop and the public function `together`, `model_structure` what is known of the
model, `batches` reads any form of batch. Used by the other subpackages of `measure`.
"""
