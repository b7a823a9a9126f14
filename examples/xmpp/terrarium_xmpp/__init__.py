"""A tendril of Terrarium in an XMPP room."""
