"""The two renderers of a figure (`vitascope.figure`): SVG for the page, matplotlib for papers."""
