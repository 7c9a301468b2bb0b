/* Helpers for files that VELOC's API routes into a checkpoint. */
#ifndef ROUTED_H
#define ROUTED_H

#include "check.h"
#include "veloc.h"

#include <stdio.h>
#include <string.h>

/* Writes `text` to the file of a checkpoint. */
static void write_routed(const char *original, const char *text)
{
    char routed[VELOC_MAX_NAME];
    FILE *file;
    CHECK(VELOC_Route_file(original, routed) == VELOC_SUCCESS);
    file = fopen(routed, "w");
    CHECK(file != NULL && fputs(text, file) >= 0 && fclose(file) == 0);
}

/* Checks that a file begins with `text`. */
static void has(const char *path, const char *text)
{
    char read[100] = "";
    FILE *file = fopen(path, "r");
    CHECK(file != NULL && fgets(read, sizeof read, file) != NULL && fclose(file) == 0);
    CHECK(strcmp(read, text) == 0);
}

#endif
