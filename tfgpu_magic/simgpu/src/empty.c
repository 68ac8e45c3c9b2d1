/* empty.c: the libraries that TensorFlow looks for and no dense network calls: they exist, with nothing in them. */
typedef int a_file_needs_something;
