/* Ranks are processes of one program, and meet in shared memory. */
#ifndef RANKS_H
#define RANKS_H

#include "check.h"

#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MOST_RANKS = 64, PART = 1024 };

typedef struct table {
    volatile long came[MOST_RANKS];
    volatile int flags[MOST_RANKS]; /* for the tests themselves */
    unsigned char parts[2][MOST_RANKS][PART];
} table;

static table *shared;
static int own_rank, all_ranks;

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void nap(void)
{
    struct timespec pause = {0, 500000};
    nanosleep(&pause, NULL);
}

/* Gathers a part of each rank, as an MPI_Iallgather that is given up at `end`: returns 1 then, and the rank's own part stays for the others. */
static int gather_part(const unsigned char *mine, unsigned char *all, size_t stride, size_t bytes, double end)
{
    long turn = shared->came[own_rank] + 1;
    int rank;
    memcpy(shared->parts[turn % 2][own_rank], mine, bytes);
    __sync_synchronize();
    shared->came[own_rank] = turn;
    for (rank = 0; rank < all_ranks; rank++)
        while (shared->came[rank] < turn) {
            if (now() > end)
                return 1;
            nap();
        }
    __sync_synchronize();
    for (rank = 0; rank < all_ranks; rank++)
        memcpy(all + (size_t)rank * stride, shared->parts[turn % 2][rank], bytes);
    return 0;
}

static int all_gather(void *context, const void *mine, void *all, size_t bytes, double seconds)
{
    double end = now() + seconds;
    size_t start;
    (void)context;
    for (start = 0; start < bytes; start += PART) {
        size_t part = bytes - start < PART ? bytes - start : PART;
        if (gather_part((const unsigned char *)mine + start, (unsigned char *)all + start, bytes, part, end) != 0)
            return 1;
    }
    return 0;
}

static tf_group group_of_ranks(void)
{
    tf_group group;
    memset(&group, 0, sizeof group);
    group.rank = (uint32_t)own_rank;
    group.ranks = (uint32_t)all_ranks;
    group.all_gather = all_gather;
    return group;
}

/* Runs `ranks` processes until all have ended, and calls `meanwhile` until then. Fails if one of them fails. */
static void run_ranks(int ranks, void (*rank)(void), void (*meanwhile)(void))
{
    int number, code, left = ranks;
    all_ranks = ranks;
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED && ranks <= MOST_RANKS);
    for (number = 0; number < ranks; number++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            own_rank = number;
            rank();
            fflush(stdout);
            _exit(0);
        }
    }
    while (left > 0) {
        pid_t ended = waitpid(-1, &code, meanwhile == NULL ? 0 : WNOHANG);
        CHECK(ended >= 0);
        if (ended == 0) {
            meanwhile();
            nap();
            continue;
        }
        CHECK(code == 0);
        left--;
    }
    munmap(shared, sizeof *shared);
}

#endif
