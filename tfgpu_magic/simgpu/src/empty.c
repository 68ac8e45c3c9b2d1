/* empty.c: an empty library, which TensorFlow looks for and hardly ever calls. */
typedef int a_file_needs_something;
