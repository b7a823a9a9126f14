"""Who is answered and how often, commands as requests, what the log keeps."""
