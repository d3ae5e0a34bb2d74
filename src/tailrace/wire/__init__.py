"""What all users of Arrow Flight share: messages, the server and client around them, credentials, TLS, addresses.

`messages` says what travels, `server` and `client` move it, `failures` carries errors across unchanged, and `callers`
says who asks and what they may do.
"""
