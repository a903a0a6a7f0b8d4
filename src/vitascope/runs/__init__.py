"""Many trainings: what each trains, its cached folder, what is measured on it, and who runs them.

``compare`` and ``study`` are plans over these modules: :mod:`.spec` says what is trained,
:mod:`.cache` trains one unless its folder holds it already, :mod:`.readings` measures it,
:mod:`.executor` runs many, in processes on this machine or as SLURM jobs.
"""
