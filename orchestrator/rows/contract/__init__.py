"""The rows of each kind of JSON output, with types and meanings. `schema` prints them."""
