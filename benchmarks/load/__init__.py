"""Programs of the benchmark of Spark: rows to read, a source alone, and a query that ends with its first rows."""
