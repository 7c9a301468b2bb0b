/*
 * Functions of all heat examples: a plate whose upper edge is hot, cut into strips of rows, one for each rank. The result is
 * the same bit for bit whether a run was interrupted or not.
 */
#ifndef HEAT_H
#define HEAT_H

#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { COLUMNS = 256, ROWS = 64 /* of a strip */ };

/* A strip, with one row of the neighbour above and one of the neighbour below. */
typedef double strip[ROWS + 2][COLUMNS];

static void heat_begin(strip field, int rank)
{
    int row, column;
    for (row = 0; row < ROWS + 2; row++)
        for (column = 0; column < COLUMNS; column++)
            field[row][column] = rank == 0 && row == 0 ? 100.0 : 0.0;
}

/* Computes one step from `from` to `to`. */
static void heat_step(strip from, strip to, int rank, int ranks)
{
    int up = rank > 0 ? rank - 1 : MPI_PROC_NULL, down = rank < ranks - 1 ? rank + 1 : MPI_PROC_NULL;
    int row, column;
    MPI_Sendrecv(from[1], COLUMNS, MPI_DOUBLE, up, 1, from[ROWS + 1], COLUMNS, MPI_DOUBLE, down, 1, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    MPI_Sendrecv(from[ROWS], COLUMNS, MPI_DOUBLE, down, 2, from[0], COLUMNS, MPI_DOUBLE, up, 2, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    for (row = 0; row < ROWS + 2; row++)
        for (column = 0; column < COLUMNS; column++)
            to[row][column] = from[row][column];
    for (row = 1; row <= ROWS; row++)
        for (column = 1; column < COLUMNS - 1; column++)
            to[row][column] = 0.25 * (from[row - 1][column] + from[row + 1][column] + from[row][column - 1] +
                                      from[row][column + 1]);
}

/* Prints a checksum of all strips (FNV-1a, added up) on rank 0: "result" and a number. */
static void heat_result(strip field, int rank)
{
    const unsigned char *byte = (const unsigned char *)field[1];
    uint64_t sum = 14695981039346656037u ^ (uint64_t)rank, all = 0;
    size_t index;
    for (index = 0; index < ROWS * COLUMNS * sizeof(double); index++)
        sum = (sum ^ byte[index]) * 1099511628211u;
    MPI_Reduce(&sum, &all, 1, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("result %016llx\n", (unsigned long long)all);
}

/* Ends all ranks with a message. */
static void heat_stop(const char *what)
{
    fprintf(stderr, "%s failed\n", what);
    MPI_Abort(MPI_COMM_WORLD, 2);
    exit(2);
}

#define MUST(call)                 \
    do {                           \
        if ((call) != 0)           \
            heat_stop(#call);      \
    } while (0)

#endif
