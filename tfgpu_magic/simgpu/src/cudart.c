/* cudart.c */
typedef int nothing_here;
