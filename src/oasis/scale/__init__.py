"""Past one machine: engines of others, fed exactly and safely."""
