"""Sessions by address: contacts, invitations and the iroh endpoint. Not built yet.

The only room that may import iroh.
"""
