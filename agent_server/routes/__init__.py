"""The endpoints, one noun a file."""
