"""A figure as data, and its two renderers: SVG for the page, matplotlib for papers."""
