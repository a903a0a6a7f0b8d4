"""How instruments run: one pass over the batches, shared by several instruments.

`one_pass` is the loop, `model_structure` what is known of the model, `batches` reads any form of
batch, `together` is the public function. Used by the other rooms of `measure`.
"""
