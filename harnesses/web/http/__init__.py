"""HTTP around the pages: compression, CORS, ETags, error responses."""
