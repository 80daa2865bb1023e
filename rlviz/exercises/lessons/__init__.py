"""What `check.bug` and `check.unlabelled` know of each lesson: a file lNN.py with BUG, RUN or both."""
