"""What a launcher starts in a slot: a small process without TensorFlow that looks after a worker."""
