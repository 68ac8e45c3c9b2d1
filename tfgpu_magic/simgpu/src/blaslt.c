/* blaslt.c */
typedef int nothing_here;
