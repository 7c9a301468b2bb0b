/*
 * The ranks of an MPI communicator as a tf_group, and VELOC's initialisation with one. Compiled by the application's own
 * mpicc: the library itself knows no MPI.
 */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200112L
#endif

#include "tierflow_mpi.h"
#include "veloc.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct meeting {
    MPI_Comm comm;
    int ranks;
    int is_over; /* some rank did not come: what it was to take part in is still under way */
} meeting;

/* Waits for a request until a time by MPI_Wtime: often at first, then each millisecond. Returns whether it is done. */
static int is_done_by(MPI_Request *request, double end)
{
    struct timespec pause = {0, 1000000};
    int looks, done = 0;
    for (looks = 0; MPI_Test(request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && !done; looks++) {
        if (MPI_Wtime() > end)
            return 0;
        if (looks > 1000)
            nanosleep(&pause, NULL);
    }
    return done;
}

/* One part that an int can count. What is given and taken is copied: it must stay if some rank does not come. */
static int gather_part(meeting *with, const char *mine, char *all, size_t stride, int bytes, double end)
{
    size_t size = (size_t)bytes;
    char *given = malloc(size), *taken = malloc(size * (size_t)with->ranks);
    MPI_Request request;
    int rank;
    if (given == NULL || taken == NULL) {
        free(given);
        free(taken);
        return 1;
    }
    memcpy(given, mine, size);
    if (MPI_Iallgather(given, bytes, MPI_BYTE, taken, bytes, MPI_BYTE, with->comm, &request) != MPI_SUCCESS ||
        !is_done_by(&request, end)) {
        with->is_over = 1;
        return 1;
    }
    for (rank = 0; rank < with->ranks; rank++)
        memcpy(all + (size_t)rank * stride, taken + (size_t)rank * size, size);
    free(given);
    free(taken);
    return 0;
}

static int all_gather(void *context, const void *mine, void *all, size_t bytes, double seconds)
{
    meeting *with = context;
    const size_t most = INT_MAX / 2 / (size_t)with->ranks + 1;
    double end = MPI_Wtime() + seconds;
    size_t start;
    for (start = 0; start < bytes && !with->is_over; start += most) {
        size_t part = bytes - start < most ? bytes - start : most;
        if (gather_part(with, (const char *)mine + start, (char *)all + start, bytes, (int)part, end) != 0)
            return 1;
    }
    return with->is_over;
}

static void release(void *context)
{
    meeting *with = context;
    int finalized = 1;
    MPI_Finalized(&finalized);
    if (!finalized && !with->is_over)
        MPI_Comm_free(&with->comm);
    free(with);
}

int tf_mpi_group(MPI_Comm comm, tf_group *group)
{
    int rank;
    meeting *with = malloc(sizeof *with);
    if (with == NULL)
        return TF_NO_ROOM;
    with->is_over = 0;
    if (MPI_Comm_dup(comm, &with->comm) != MPI_SUCCESS) {
        free(with);
        return TF_GROUP;
    }
    MPI_Comm_rank(with->comm, &rank);
    MPI_Comm_size(with->comm, &with->ranks);
    memset(group, 0, sizeof *group);
    group->rank = (uint32_t)rank;
    group->ranks = (uint32_t)with->ranks;
    group->all_gather = all_gather;
    group->release = release;
    group->context = with;
    return TF_OK;
}

int VELOC_Init(MPI_Comm comm, const char *cfg_file)
{
    tf_group group;
    if (tf_mpi_group(comm, &group) != TF_OK)
        return VELOC_FAILURE;
    return VELOC_Init_group(&group, cfg_file);
}
