"""The process that trains: the only part that imports TensorFlow, Keras and Horovod."""
