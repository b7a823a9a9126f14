"""A small, fast HTTP/1.1 client: connections and a pool of them for one base URL."""
