"""Rendering of the pages: templates, text, links, times and charts."""
