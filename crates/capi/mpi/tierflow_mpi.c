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
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct meeting {
    MPI_Comm comm; /* for what all ranks give each other */
    MPI_Comm talk; /* for messages between two */
    int tag;       /* another one for each group, so that what one left behind is not received by the next */
    struct message *sent;
    int ranks;
    int is_over; /* some rank did not come: what it was to take part in is still under way */
} meeting;

/* Whether MPI is there: before it is initialised and behind its end, it ends a program that asks more of it. */
static int is_there(void)
{
    int begun = 0, ended = 1;
    MPI_Initialized(&begun);
    MPI_Finalized(&ended);
    return begun && !ended;
}

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
    double end;
    size_t start;
    if (!is_there())
        return 1;
    end = MPI_Wtime() + seconds;
    for (start = 0; start < bytes && !with->is_over; start += most) {
        size_t part = bytes - start < most ? bytes - start : most;
        if (gather_part(with, (const char *)mine + start, (char *)all + start, bytes, (int)part, end) != 0)
            return 1;
    }
    return with->is_over;
}

/* ---- messages, for redundancy ---------------------------------------------------------------------------------------- */

enum { WINDOW = 8 }; /* messages under way to a rank before the next one waits */

/* A message that is sent: it must stay until it is. */
typedef struct message {
    struct message *next;
    MPI_Request request;
    int to;
    char bytes[];
} message;

/* Forgets messages that are sent. Returns how many are under way to a rank, or to all if that is -1. */
static int under_way(meeting *with, int to)
{
    message **at = &with->sent;
    int count = 0;
    while (*at != NULL) {
        message *one = *at;
        int done = 0;
        if (MPI_Test(&one->request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && done) {
            *at = one->next;
            free(one);
            continue;
        }
        count += to < 0 || one->to == to;
        at = &one->next;
    }
    return count;
}

/* Makes way for others between two looks: soon at first, then each millisecond. */
static void pause_between(int looks)
{
    struct timespec pause = {0, looks < 200 ? 50000 : 1000000};
    if (looks < 50)
        sched_yield();
    else
        nanosleep(&pause, NULL);
}

/* Waits until fewer than `most` messages are under way to a rank, or to all. */
static int wait_for_room(meeting *with, int to, int most, double seconds)
{
    double end;
    int looks;
    if (!is_there())
        return TF_GROUP;
    end = MPI_Wtime() + seconds;
    for (looks = 0; under_way(with, to) >= most; looks++) {
        if (MPI_Wtime() > end)
            return TF_TIMED_OUT;
        pause_between(looks);
    }
    return TF_OK;
}

static int send_message(void *context, uint32_t to, const void *bytes, size_t size, double seconds)
{
    meeting *with = context;
    message *one;
    int waited;
    if (size > INT_MAX || to >= (uint32_t)with->ranks)
        return TF_ARGUMENT;
    waited = wait_for_room(with, (int)to, WINDOW, seconds);
    if (waited != TF_OK)
        return waited;
    one = malloc(sizeof *one + size);
    if (one == NULL)
        return TF_NO_ROOM;
    memcpy(one->bytes, bytes, size);
    one->to = (int)to;
    if (MPI_Isend(one->bytes, (int)size, MPI_BYTE, (int)to, with->tag, with->talk, &one->request) != MPI_SUCCESS) {
        free(one);
        return TF_GROUP;
    }
    /* Behind the others: those that were sent first are done first. */
    one->next = NULL;
    {
        message **end = &with->sent;
        while (*end != NULL)
            end = &(*end)->next;
        *end = one;
    }
    return TF_OK;
}

static int receive_message(void *context, uint32_t from, void *bytes, size_t room, size_t *size, double seconds)
{
    meeting *with = context;
    double end;
    MPI_Status status;
    int looks, count, has_come = 0;
    if (from >= (uint32_t)with->ranks)
        return TF_ARGUMENT;
    if (!is_there())
        return TF_GROUP;
    end = MPI_Wtime() + seconds;
    for (looks = 0; !has_come; looks++) {
        if (MPI_Iprobe((int)from, with->tag, with->talk, &has_come, &status) != MPI_SUCCESS)
            return TF_GROUP;
        if (has_come)
            break;
        /* What this rank sends goes on meanwhile. */
        under_way(with, -1);
        if (MPI_Wtime() > end)
            return TF_TIMED_OUT;
        pause_between(looks);
    }
    MPI_Get_count(&status, MPI_BYTE, &count);
    *size = (size_t)count;
    if (*size > room)
        return TF_OK;
    /* No other thread receives here, so it is the message that was probed. */
    if (MPI_Recv(bytes, count, MPI_BYTE, (int)from, with->tag, with->talk, MPI_STATUS_IGNORE) != MPI_SUCCESS)
        return TF_GROUP;
    return TF_OK;
}

static int flush_messages(void *context, double seconds)
{
    return wait_for_room(context, -1, 1, seconds);
}

static void release(void *context)
{
    meeting *with = context;
    if (is_there() && !with->is_over) {
        /* What a rank that ended left is not waited for: it stays where it is. */
        int left = under_way(with, -1);
        MPI_Comm_free(&with->comm);
        MPI_Comm_free(&with->talk);
        if (left > 0)
            return;
    }
    free(with);
}

/* Says why there is no group: tf_error_message() has only what the library says. */
static int refused(int status, const char *why)
{
    fprintf(stderr, "tierflow: tf_mpi_group: %s\n", why);
    return status;
}

int tf_mpi_group(MPI_Comm comm, tf_group *group)
{
    static int groups;
    int rank, threads, number;
    meeting *with;
    if (!is_there())
        return refused(TF_GROUP, "MPI is not there: call it between MPI_Init and MPI_Finalize");
    with = calloc(1, sizeof *with);
    if (with == NULL)
        return refused(TF_NO_ROOM, "there is no memory for a group");
    if (MPI_Comm_dup(comm, &with->comm) != MPI_SUCCESS) {
        free(with);
        return refused(TF_GROUP, "MPI failed to duplicate the communicator");
    }
    with->talk = MPI_COMM_NULL;
    number = groups + 1;
    if (MPI_Comm_dup(comm, &with->talk) != MPI_SUCCESS || MPI_Query_thread(&threads) != MPI_SUCCESS ||
        MPI_Allreduce(&number, &groups, 1, MPI_INT, MPI_MAX, with->comm) != MPI_SUCCESS) {
        if (with->talk != MPI_COMM_NULL)
            MPI_Comm_free(&with->talk);
        MPI_Comm_free(&with->comm);
        free(with);
        return refused(TF_GROUP, "MPI failed while the ranks agreed on the group");
    }
    /* The standard promises tags up to this. */
    with->tag = groups % 32768;
    MPI_Comm_rank(with->comm, &rank);
    MPI_Comm_size(with->comm, &with->ranks);
    memset(group, 0, sizeof *group);
    group->rank = (uint32_t)rank;
    group->ranks = (uint32_t)with->ranks;
    group->all_gather = all_gather;
    group->release = release;
    group->context = with;
    group->send = send_message;
    group->receive = receive_message;
    group->flush = flush_messages;
    group->threads = threads == MPI_THREAD_MULTIPLE;
    return TF_OK;
}

int VELOC_Init(MPI_Comm comm, const char *cfg_file)
{
    tf_group group;
    if (tf_mpi_group(comm, &group) != TF_OK)
        return VELOC_FAILURE;
    return VELOC_Init_group(&group, cfg_file);
}
