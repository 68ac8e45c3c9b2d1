/* blas.c */
typedef int nothing_here;
