"""Building blocks of methods: terms, update schedules, and the parts that joint-training methods share."""
