"""The embedded IRC server that `terrarium up` starts.

    python -m harnesses.irc.ircd --host 127.0.0.1 --port 6667

RFC 2812 as current clients use it (https://modern.ircdocs.horse/): one server, no services, no
capabilities, nothing stored.
"""
