"""The IRC server that `terrarium up` brings along: irc3d made fit for real clients.

    python -m harnesses.irc.ircd --host 127.0.0.1 --port 6667

It keeps irc3d's plugins (`--include MODULE`) and replaces its connections and its commands.
"""
