"""What the benchmarks compare: a run of ours, and what people write or take from elsewhere."""
