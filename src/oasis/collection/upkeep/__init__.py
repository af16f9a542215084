"""Upkeep of a collection: `checks` finds and repairs damage, `backup` copies."""
