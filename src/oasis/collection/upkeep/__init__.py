"""Keeping a collection: `checks` finds damage and says what repair makes anew, `backup` copies."""
