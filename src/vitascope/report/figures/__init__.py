"""A figure as data, and its two renderers: SVG for the page, matplotlib for papers.

Filled by `report.instruments` and `report.sections`; drawn by the page and by exports.
"""
