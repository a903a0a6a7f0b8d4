"""Grids of runs: a training, its folder, what is read off it, and who runs many of them.

``compare``, ``study`` and ``buildup`` are plans over these modules: :mod:`.training` says what is
trained, :mod:`.runs` trains one, :mod:`.readings` measures it, :mod:`.executor` runs many, in
processes on this machine or as SLURM jobs.
"""
