"""Many runs: the search, the soup and the report."""
