"""Requests: what each command can be asked, one frozen dataclass per command.

Fields, defaults and help texts are said here alone. The command line reads a request with tyro,
Python makes one from keyword arguments (:func:`vitascope.requests.from_python.from_python`), and
``studies`` and ``api`` answer it. Nothing here imports torch, nor any package of ours but
``errors`` and ``settings``; every package may import this one.
"""
