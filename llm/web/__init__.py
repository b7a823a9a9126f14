"""Web pages: safe fetching, text extraction, web search."""
