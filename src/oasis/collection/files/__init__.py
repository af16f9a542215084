"""Files beside the catalog: `files` has their generations and the journal, `lock` the lock."""
