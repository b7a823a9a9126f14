"""Templates, text, links, times and charts of the pages."""
