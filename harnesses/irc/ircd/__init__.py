"""The embedded IRC server that `terrarium up` starts, based on irc3d.

    python -m harnesses.irc.ircd --host 127.0.0.1 --port 6667

irc3d's plugins work (`--include MODULE`); its connections and its commands are replaced.
"""
