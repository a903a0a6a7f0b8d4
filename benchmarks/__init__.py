"""Speed against a peer in the same process; one file per subject.

Run one from the project's folder: ``python -m benchmarks gpsa``; `make bench` runs all.
"""
