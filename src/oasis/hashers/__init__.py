"""What a hasher is: its protocol, a base class to write one on, and the checks of a chunk."""
