"""HTTP around the endpoints: middleware, responses, errors."""
