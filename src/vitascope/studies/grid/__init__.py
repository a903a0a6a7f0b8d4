"""Grids of runs: one training, its folder, what is read off it, and the executor of many.

``compare``, ``study`` and ``buildup`` are plans over these modules: :mod:`.training` says what is
trained, :mod:`.runs` trains one, :mod:`.readings` measures it, :mod:`.executor` runs many, in
processes on this machine or as SLURM jobs.
"""
