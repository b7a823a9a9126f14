"""HTTP: a small, fast HTTP/1.1 client, and the runner of uvicorn."""
