"""HTTP around the endpoints: middleware, streams, error responses, cancellation."""
