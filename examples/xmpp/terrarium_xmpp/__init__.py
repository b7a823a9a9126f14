"""Terrarium tendril for an XMPP chat room."""
