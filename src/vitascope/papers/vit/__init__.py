"""Tables and figures of "How do vision transformers work?" (Park and Kim 2022).

Definitions only; listed in the catalogue of `papers`.
"""
