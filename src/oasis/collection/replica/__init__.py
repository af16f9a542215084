"""Where the codes are searched: `replica` in memory, `milvus` in Milvus."""
