/* empty.c: a library that TensorFlow looks for and hardly ever calls: it exists, with nothing in it. */
typedef int a_file_needs_something;
