"""Pages of the web: fetched safely, read as text, searched for."""
