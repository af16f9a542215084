"""Files beside the catalog: `files` has their generations, `lock` the lock."""
