"""The command line: parse, call, print. One module a command, imported when that command is called.

A front end: nothing below it knows it, and it decides nothing that another front end would decide again.
"""
