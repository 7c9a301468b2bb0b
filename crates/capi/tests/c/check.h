/* Helpers of all tests in C. */
#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>
#include <stdlib.h>

#include "tierflow.h"

/* Ends the test if a condition does not hold. */
#define CHECK(what)                                                                                      \
    do {                                                                                                 \
        if (!(what)) {                                                                                   \
            fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #what, tf_error_message());          \
            exit(1);                                                                                     \
        }                                                                                                \
    } while (0)

/* Fills memory with bytes that differ for each seed. */
static void fill(unsigned char *bytes, size_t count, unsigned seed)
{
    size_t index;
    for (index = 0; index < count; index++)
        bytes[index] = (unsigned char)(index * 31 + seed * 7 + (index >> 8));
}

static int holds(const unsigned char *bytes, size_t count, unsigned seed)
{
    size_t index;
    for (index = 0; index < count; index++)
        if (bytes[index] != (unsigned char)(index * 31 + seed * 7 + (index >> 8)))
            return 0;
    return 1;
}

#endif
