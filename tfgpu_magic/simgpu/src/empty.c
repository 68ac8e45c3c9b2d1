/* empty.c */
typedef int nothing_here;
