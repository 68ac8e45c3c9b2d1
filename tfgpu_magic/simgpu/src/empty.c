/* empty.c: libraries that TensorFlow looks for and that no dense network calls: they exist, and have nothing in them. */
typedef int a_file_needs_something;
