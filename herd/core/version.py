"""The version of this distribution, for the code and for packaging alike."""

VERSION = "0.1.0"
"""What `herd --version` and a build's evidence say."""
