/*
 * Tierflow from C: a checkpoint cache over GPU memory, host memory, disk and external storage.
 *
 * Every function returns a tf_status unless it says otherwise, and may be called from any thread. None aborts, exits or
 * throws. After an error, tf_error_message() says what failed and what to do; but what
 * tf_mpi_group() and the modules for Fortran refuse themselves is written to the standard error.
 *
 * Engines, options and slots are named by handles. A handle that was closed, and one of the process that this one is a fork
 * of, is TF_CLOSED; it is never followed.
 *
 * Structures that are passed by pointers keep their size and their members as long as the library keeps its soname (libtierflow.so.0.1):
 * a program that was compiled with an older header of that name runs on a newer library. More is chosen by new names of options, and told
 * by new functions. A release that changes a structure has another soname, and other symbol versions.
 */
#ifndef TIERFLOW_H
#define TIERFLOW_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The release of this header; tf_version() tells that of the library. Releases with the same TIERFLOW_VERSION_MAJOR serve each
 * other, and while that is 0, those with the same TIERFLOW_VERSION_MINOR. */
#define TIERFLOW_VERSION "0.1.0"
#define TIERFLOW_VERSION_MAJOR 0
#define TIERFLOW_VERSION_MINOR 1
#define TIERFLOW_VERSION_PATCH 0

/* What the caller does next. */
enum tf_status {
    TF_OK = 0,
    TF_ARGUMENT = 1,  /* mend the call, or the options */
    TF_UNKNOWN = 2,   /* there is no such version: ask for another */
    TF_NO_ROOM = 3,   /* discard or restore versions, or enlarge a tier; then call again */
    TF_TIMED_OUT = 4, /* what was begun goes on: wait again, or go on without it */
    TF_STALLED = 5,   /* versions could not get to the lowest tier and stay where they are: mend that, wait again */
    TF_DAMAGED = 6,   /* this version cannot be read: go on from an older one */
    TF_STORAGE = 7,   /* see to the storage */
    TF_DEVICE = 8,    /* see to the GPU, or the memory of the machine */
    TF_GROUP = 9,     /* the ranks did not meet or do not agree: start all of them together */
    TF_CLOSED = 10,   /* the handle is closed, or another process's */
    TF_INTERNAL = 11  /* a defect of the library: report it */
};

/* What went wrong in the last call of this thread that failed: good until the next one fails. Never NULL. */
const char *tf_error_message(void);

/* The release of the library, such as "0.1.0". */
const char *tf_version(void);

/* ---- the log -------------------------------------------------------------------------------------------------------- */

enum tf_log_level {
    TF_LOG_OFF = 0,
    TF_LOG_ERROR = 1, /* versions that are lost */
    TF_LOG_WARN = 2,  /* versions that a suspension gave up, storage that cannot be used, ways that are slower than asked for, and other
                       * ranks that do not come */
    TF_LOG_INFO = 3,  /* what each start found */
    TF_LOG_DEBUG = 4
};

/* Writes a line of the log, which names the rank and the host if there are several. Called from any thread; `line` is good until it returns. */
typedef void (*tf_log_line)(void *context, int level, const char *line);

/*
 * Has what the library tells, up to a tf_log_level, written by this function from now on; NULL: to standard error. Without this call,
 * warnings and errors go to standard error, or what the variable TIERFLOW_LOG says: off, error, warn, info or debug.
 */
int tf_log(int level, tf_log_line line, void *context);

/* ---- options -------------------------------------------------------------------------------------------------------- */

typedef uint64_t tf_options;

/*
 * Begins with the options that the file of the variable TIERFLOW_CONFIG has, or /etc/tierflow.conf if that is there: lines such as
 * "host_cache = 4GiB". What is set afterwards counts more. TF_STORAGE: the file cannot be read. TF_ARGUMENT: it has a line that is wrong.
 */
int tf_options_new(tf_options *options);

/*
 * Chooses something by its name, the same in every language. Bytes are numbers or such as "512MiB", times are seconds. In paths and URLs,
 * $NAME and ${NAME} stand for variables of the environment, and $$ for a dollar.
 *
 *   device            auto | host | cuda | cuda:N               auto: the first GPU if there is one
 *   device_cache      bytes of GPU memory to keep checkpoints in
 *   device_growth     incremental | direct: whether it is mapped in the background or in one call at the start
 *   evict_while_growing  true | false: whether versions give way in a GPU cache that still grows
 *   peers             memory of other GPUs as a tier below: "cuda:1=8GiB, cuda:2=8GiB"
 *   overflow          bytes by which a group checkpoint is larger than each GPU's cache: "cuda:0=4GiB, cuda:3=2GiB"; of the
 *                     memory in peers the engine then takes what the schedule sends there
 *   machine           file of the links' rates for that schedule; measured and written where it is missing
 *   host_cache        bytes of host memory
 *   host_growth       needed | full: whether it is made ready ahead of its use or all of it at once
 *   host_lead         bytes that are pinned ahead of their use
 *   host_pool         bytes of host memory that all engines of this user on this machine share which name the same, in the place of
 *                     host_cache; host_pool_directory is where that lies, host_pool_slab what engines give each other at a time
 *   scratch           directory for a file that is deleted with the engine; or several, on file systems of their own, with
 *                     colons between them: what is written goes to the one that is predicted to have it first
 *   storage_limit     bytes of that file, or of all of them
 *   scratch_checksums  true | false: whether what is read from that file is compared with checksums; true
 *   direct_io         never | measured | always: whether GPU memory and that file are copied by cuFile
 *   node_local        directory of this node in which versions outlive the process
 *   node_local_limit  bytes of it; what also lies on external storage gives way
 *   external          directory, such as of a parallel file system, in which versions outlive the node; or an object store:
 *                     s3://bucket/prefix, gs://…, az://…, with the credentials and addresses of the environment (AWS_…)
 *   agent             directory in which an agent runs, as "tierflow-agent DIRECTORY" does: it brings what lies in node_local to the
 *                     directory external, also after this process is gone; where none answers, this process does it
 *   agent_program     the program tierflow-agent, to be started where no agent answers
 *   keep_newest       versions to keep there; keep_every keeps every so many-th, too, and keep_younger_than those of so many seconds
 *   after_restore     keep | discard
 *   flush             needed | eager
 *   durable_in_order  true | false: whether versions become durable in the order of their numbers
 *   policy            residency | score | lru | fifo: the order in which versions are taken to be used; the last gives way first
 *   dedup             bytes of a chunk: what leaves the fastest tier is stored as differences
 *   dedup_reads       checkpoints whose bytes a restore reads of differences, at most: 2, or more to store less
 *   compress          type of the values, such as f32: what leaves the fastest tier is compressed, losslessly but for named
 *                     regions that follow with a share of their largest value: "f32, wave = 1e-3". With dedup, it is
 *                     the differences that are compressed, without such regions. "f32, storage" compresses what goes to
 *                     scratch and below, "f32, external" what goes to node_local and external; both without dedup.
 *                     "f32, nvcomp-lz4" and "f32, nvcomp-zstd" have the system's libnvcomp compress on the GPU
 *   timeline          entries of the time line
 *   statistics        file that has tf_statistics once the engine ends: %r in it is the rank, %h the host, %p the process
 *   rank, ranks, run  this rank, how many there are, and the number of this run, without a tf_group
 *   group_patience    how long the ranks of a group wait for each other; 300
 *   redundancy        none | partner | xor:8 | rs:8+2: what other ranks of the group keep of node_local, so that it outlives
 *                     nodes: copies in pairs, one parity in sets of 8, 2 parities in sets of 10
 *   refuse_losses     true | false: whether no rank's engine is opened where more is lost than redundancy bears
 *   failure_domain    what this rank fails together with, such as its rack; the name of the host
 *   exchange          directory that all nodes see, by which redundancy passes, if not by the group's send and receive
 *   closing_patience  how long closing waits for storage once no bytes get there any more; 60
 *
 * Without any cache or directory there is no engine.
 */
int tf_options_set(tf_options options, const char *key, const char *value);

int tf_options_free(tf_options options);

typedef uint64_t tf_host_pool;

/*
 * Host memory that the engines of this process share, in the place of host_cache: each has an equal part when it wants it, and borrows
 * what the others leave idle, in pieces of `slab` bytes; 0: as many as is usual. Engines keep a pool that is freed.
 */
int tf_host_pool_new(uint64_t bytes, uint64_t slab, tf_host_pool *pool);
int tf_options_set_pool(tf_options options, tf_host_pool pool);
int tf_host_pool_free(tf_host_pool pool);

/* ---- groups --------------------------------------------------------------------------------------------------------- */

/*
 * Gives `bytes` bytes of `mine` to all ranks, and writes what each of them gave, in the order of the ranks, to `all`.
 * Every rank calls it at about the same time, with as many bytes. Returns 0, or anything else if some rank did not call it
 * within `seconds`.
 */
typedef int (*tf_all_gather)(void *context, const void *mine, void *all, size_t bytes, double seconds);

/*
 * Sends a message to a rank. It may wait until earlier ones were received, `seconds` at most, and does not wait for this one; the
 * bytes may be changed when it returns. Messages of a rank to another arrive once, and in their order.
 * Returns 0, TF_TIMED_OUT, or anything else if it failed.
 */
typedef int (*tf_send)(void *context, uint32_t to, const void *message, size_t bytes, double seconds);

/*
 * Receives the next message of a rank, waited for `seconds` at most. One that is longer than `room` stays to be received;
 * `bytes` says how long it is. Returns 0, TF_TIMED_OUT, or anything else if it failed.
 */
typedef int (*tf_receive)(void *context, uint32_t from, void *message, size_t room, size_t *bytes, double seconds);

/* Waits until what was sent needs no more calls of this rank to arrive. Returns as tf_send does. */
typedef int (*tf_flush)(void *context, double seconds);

/*
 * The ranks of an application that checkpoint together: a version counts when every rank's part of it is durable.
 * tf_mpi_group() of tierflow_mpi.h makes one of an MPI communicator.
 */
typedef struct tf_group {
    uint32_t rank;
    uint32_t ranks;
    uint64_t run;                   /* the same for all, another one after each restart; 0: rank 0 draws it */
    tf_all_gather all_gather;       /* called within calls of the application's alone, on their threads, one at a time */
    void (*release)(void *context); /* called once, when the engine is closed or could not be opened; may be NULL */
    void *context;

    /*
     * For redundancy: NULL if there is none, or if it passes by the `exchange` directory. One of them is called at a time.
     *
     * If `threads` is not 0, they may be called from a thread of the library's while the application and all_gather use the
     * network, too: an MPI that was initialised with MPI_THREAD_MULTIPLE. Redundancy is made in the background then.
     *
     * Else they are called within tf_open, tf_wait, tf_protect and tf_close alone, on the thread that calls these, and all ranks
     * of the group make these calls, in the same order, at about the same time.
     */
    tf_send send;
    tf_receive receive;
    tf_flush flush; /* may be NULL if nothing has to be waited for */
    int threads;
} tf_group;

/* ---- engines -------------------------------------------------------------------------------------------------------- */

typedef uint64_t tf_engine;

/*
 * Opens an engine. With a group this is collective: all return with the same versions held, the newest being the newest
 * that every rank has. `group` may be NULL. The options may be freed afterwards.
 */
int tf_open(tf_options options, const tf_group *group, tf_engine *engine);

/*
 * Waits until what was taken in lies on the lowest tier, if that outlives the engine, and ends the engine; what a suspension gave up
 * is not waited for, and named in the log. If it fails, the engine stays open: mend what is wrong and close it again, or give up what
 * is not durable with tf_end(). TF_ARGUMENT: slots are still lent, or other threads are in a call. While it waits, calls of other
 * threads with this handle are TF_CLOSED, also if it fails in the end.
 *
 * An engine that is open when the process exits waits as this does, and names in the log what is lost; where its redundancy passes by the
 * functions of its tf_group, it does not wait, as MPI may be over by then. Close it before MPI_Finalize.
 */
int tf_close(tf_engine engine);

/*
 * Ends the engine without waiting. TF_OK if nothing is lost by that; any other failure names the versions that are, and the engine is
 * ended nevertheless, but for TF_ARGUMENT as above.
 */
int tf_end(tf_engine engine);

/* Where a region lies. */
enum tf_place {
    TF_PLACE_ANY = 0, /* the driver is asked, which takes a microsecond; TF_ARGUMENT for memory of another GPU than the engine's */
    TF_PLACE_HOST = 1,
    TF_PLACE_DEVICE = 2 /* the engine's GPU; TF_ARGUMENT if it has none */
};

/* Bytes of the application's. Those that are restored to must not overlap. */
typedef struct tf_region {
    void *address;
    uint64_t bytes;
    int32_t place; /* an enum tf_place */
} tf_region;

/* How to make a call; NULL for one that waits as long as it takes, behind all work given to the GPU. */
typedef struct tf_call {
    void *stream;   /* a cudaStream_t of the engine's GPU: the copy comes after its work. NULL: after all work. */
    double seconds; /* to wait for room, bytes or storage at most; 0 or less: as long as it takes */
} tf_call;

/*
 * Takes in the regions, one after the other, as `version`, and returns when they are copied: they may be changed at once.
 * Every version has a number of its own. Flushes to lower tiers go on in the background.
 */
int tf_checkpoint(tf_engine engine, uint64_t version, const tf_region *regions, size_t count, const tf_call *call);

/* Brings a version back. The regions add up to what was checkpointed, and may be cut another way. */
int tf_restore(tf_engine engine, uint64_t version, const tf_region *regions, size_t count, const tf_call *call);

/* A region that can be brought back alone. Names have 1 to 1024 bytes. */
typedef struct tf_named {
    const char *name;
    tf_region region;
} tf_named;

/* tf_checkpoint of regions by their names, which are stored in files, too. */
int tf_checkpoint_named(tf_engine engine, uint64_t version, const tf_named *regions, size_t count, const tf_call *call);

/*
 * Brings these regions of a version back, in any order, each as long as it was. The version stays as it is: held, and not
 * consumed. One that was checkpointed without names is one region, "checkpoint".
 */
int tf_restore_named(tf_engine engine, uint64_t version, const tf_named *regions, size_t count, const tf_call *call);

/* The region of this number, from 0 on: its name, as far as it fits, and its bytes; either may be NULL. TF_UNKNOWN: there are not so many. */
int tf_region_at(tf_engine engine, uint64_t version, size_t index, char *name, size_t room, uint64_t *bytes);

/* Bytes of a region. */
int tf_region_size(tf_engine engine, uint64_t version, const char *name, uint64_t *bytes);

/*
 * Brings regions of any rank's part of a version into host memory, from the `external` directory of the group, where a version is
 * once it is durable on all ranks.
 */
int tf_restore_rank(tf_engine engine, uint64_t version, uint32_t rank, const tf_named *regions, size_t count);

/*
 * Tells which versions will be restored, in this order, after those hinted before; they are brought up ahead of time. Advice:
 * wrong, missing and late hints cost time, never correctness.
 */
int tf_hint(tf_engine engine, const uint64_t *versions, size_t count);

/*
 * Tells which versions will be restored, in this order, before all that are hinted: those that the application comes to on its way. Hinted
 * versions keep room for themselves, so hint them when they are near.
 */
int tf_hint_next(tf_engine engine, const uint64_t *versions, size_t count);

/* Withdraws all hints. */
int tf_forget_hints(tf_engine engine);

/* Withdraws the hints of these versions alone: several users of one engine each name the versions that they hinted. */
int tf_forget_hints_of(tf_engine engine, const uint64_t *versions, size_t count);

/*
 * Reserves `count` consecutive numbers for new versions, from `first` on: above all that versions of this engine have or had, that
 * hints name, and that other calls returned. So several users of one engine choose numbers that never meet.
 */
int tf_reserve(tf_engine engine, uint64_t count, uint64_t *first);

/* Lets prefetching begin; the first restore does, too. */
int tf_prefetch_start(tf_engine engine);

/* Gives a version up, restored or not. */
int tf_discard(tf_engine engine, uint64_t version);

/* Waits until all versions, or one, lie on the lowest tier: `seconds` at most, for ever if that is less than 0. */
int tf_wait(tf_engine engine, double seconds);
int tf_wait_version(tf_engine engine, uint64_t version, double seconds);

/*
 * Lets the ranks keep each other's redundancy of what lies on their nodes: see tf_group. It returns when they do; tf_wait does
 * the same, and waits for all versions before. Where redundancy is made in the background, waits for that. Without
 * redundancy, it does nothing.
 */
int tf_protect(tf_engine engine);

/* Sets `durable` to 1 or 0. */
int tf_is_durable(tf_engine engine, uint64_t version, int *durable);

/* Sets `keeps` to 1 if the engine keeps versions that were restored, and to 0 if it discards them (`after_restore`). */
int tf_keeps_restored(tf_engine engine, int *keeps);

/* The newest version held of a smaller number than `before`; UINT64_MAX for the newest of all. TF_UNKNOWN if there is none. */
int tf_latest(tf_engine engine, uint64_t before, uint64_t *version);

/* Bytes of a version. */
int tf_size(tf_engine engine, uint64_t version, uint64_t *bytes);

/* Writes the first `room` of the versions held, in ascending order, and how many there are. */
int tf_versions(tf_engine engine, uint64_t *versions, size_t room, size_t *count);

/*
 * Leaves a cache its first bytes and gives the other memory back, or takes it again up to what it was opened with. `usable` becomes the
 * bytes that the cache uses now; it may be NULL.
 */
int tf_resize_device_cache(tf_engine engine, size_t bytes, double seconds, uint64_t *usable);
int tf_resize_host_cache(tf_engine engine, size_t bytes, double seconds, uint64_t *usable);

/* ---- a preempted job ----------------------------------------------------------------------------------------------- */

typedef struct tf_suspension {
    uint64_t version; /* that is durable, or will be; UINT64_MAX if none can be in time */
    uint64_t newest;  /* that was held; UINT64_MAX if there was none */
    double seconds;   /* that it takes; less than 0 if nothing was measured yet */
} tf_suspension;

/*
 * The job is preempted in `seconds`: the newest version that can be durable by then becomes so, before anything else moves,
 * past all tiers between. Returns at once, with what will be; tf_is_durable() tells when it is, and tf_suspend_wait() waits for it.
 * When the application asks for a checkpoint, a restore or a wait after all, and this version is durable, everything goes on.
 */
int tf_suspend(tf_engine engine, double seconds, tf_suspension *suspension);

/* The same for this version: the least of those that the ranks' tf_suspend() returned. */
int tf_suspend_to(tf_engine engine, uint64_t version, double seconds, tf_suspension *suspension);

/* Waits until the version is durable, as for tf_suspend_to(). TF_TIMED_OUT if it is not by then. */
int tf_suspend_wait(tf_engine engine, uint64_t version, double seconds);

/* How many seconds a version takes to be durable if the job is suspended now: 0 if it is, less than 0 if nothing was measured. */
int tf_time_to_durable(tf_engine engine, uint64_t version, double *seconds);

typedef uint64_t tf_notice;

/*
 * A notice that is given when one of these signals comes: the job has `grace` seconds left then. The signals no longer do what they did.
 * With none, it is given by tf_notice_give() alone.
 */
int tf_notice_open(const int *signals, size_t count, double grace, tf_notice *notice);

/* The job has `grace` seconds left from now on, unless that was said before. */
int tf_notice_give(tf_notice notice, double grace);

/* How many seconds are left: INFINITY until the notice is given. */
int tf_notice_left(tf_notice notice, double *seconds);

int tf_notice_close(tf_notice notice);

/* ---- in place ------------------------------------------------------------------------------------------------------- */

typedef uint64_t tf_slot;

enum tf_slot_end_how {
    TF_GIVE_UP = 0, /* a slot to write: no version comes of it; one to read: the version is not consumed */
    TF_FINISH = 1   /* a slot to write: it is the version; one to read: the version is consumed */
};

/* Lends room in the fastest tier, to be written and finished: no copy is made of it. */
int tf_produce(tf_engine engine, uint64_t version, size_t bytes, tf_slot *slot, void **address);

/* Lends the cached copy of a version, to be read. */
int tf_consume(tf_engine engine, uint64_t version, tf_slot *slot, const void **address, size_t *bytes);

/* The same, waiting for room or bytes for `seconds` at most; for ever if that is less than 0. */
int tf_produce_within(tf_engine engine, uint64_t version, size_t bytes, double seconds, tf_slot *slot, void **address);
int tf_consume_within(tf_engine engine, uint64_t version, double seconds, tf_slot *slot, const void **address, size_t *bytes);

/*
 * Ends a loan, by an enum tf_slot_end_how. On a GPU the bytes count as written, or read, and are used again, once the work given to
 * `stream` is done: NULL for all work given to the GPU. The call does not wait for it. If it fails, the slot is as it was, unless the
 * GPU is lost.
 */
int tf_slot_end(tf_slot slot, int how, void *stream);

/* ---- seeing --------------------------------------------------------------------------------------------------------- */

typedef struct tf_calls {
    uint64_t count;
    uint64_t bytes;
    double blocked_seconds;
} tf_calls;

typedef struct tf_metrics {
    tf_calls checkpoint;
    tf_calls restore;
    tf_calls produce;
    tf_calls consume;
    uint64_t restores_from[6]; /* by the tier in which they found the version, the fastest first */
} tf_metrics;

int tf_metrics_read(tf_engine engine, tf_metrics *metrics);

/* All that is known, as text, and its length without the final zero, which may be more than fits; `length` may be NULL. */
int tf_report(tf_engine engine, char *buffer, size_t size, size_t *length);

/* As tf_report: what was measured, in the text format of OpenMetrics, which Prometheus reads. */
int tf_open_metrics(tf_engine engine, char *buffer, size_t size, size_t *length);

/* As tf_report: what was measured, what cannot be read and what was lost, as a JSON document. */
int tf_statistics(tf_engine engine, char *buffer, size_t size, size_t *length);

/* Writes the time line to a file that Perfetto and chrome://tracing open. */
int tf_write_timeline(tf_engine engine, const char *path);

/* ---- schedules of reversed computations ----------------------------------------------------------------------------- */

/* A tier below the device: bytes for states, and the bytes per second of the link down to it and up from it. */
typedef struct tf_tier {
    uint64_t room; /* UINT64_MAX: for as many states as there are */
    double down;
    double up;
} tf_tier;

/* A computation, and the memories that its states can lie in. */
typedef struct tf_machine {
    double forward;  /* seconds of a step */
    double backward; /* seconds of a reversed step */
    uint64_t state;  /* bytes of a state */
    uint64_t device; /* bytes of the fastest tier for states */
    double copy;     /* bytes per second to and from there; 0: copies are not counted */
    tf_tier tiers[5];
    size_t count; /* of tiers */
} tf_machine;

/* The tiers of an engine, with the rates that its transfers had so far. */
int tf_machine_measure(tf_engine engine, double forward, double backward, uint64_t state, tf_machine *machine);

/* Seconds that no schedule of so many steps beats. */
int tf_machine_bound(const tf_machine *machine, uint64_t steps, double *seconds);

typedef uint64_t tf_schedule;

enum tf_action_kind {
    TF_ENDED = 0,       /* there is no further action */
    TF_FORWARD = 1,     /* computes the states after `step`, up to the one of `to` */
    TF_SAVE = 2,        /* stores the state of `step`, which is there */
    TF_END_FORWARD = 3, /* the state after the last step is there for the first time */
    TF_RESTART = 4,     /* brings the state of `step` back; it stays stored */
    TF_REVERSE = 5,     /* reverses `step`, whose state is there */
    TF_FORGET = 6       /* gives up the stored state of `step` */
};

typedef struct tf_action {
    int kind; /* an enum tf_action_kind */
    uint64_t step;
    uint64_t to;
} tf_action;

/* The schedule that takes the least time: which states of so many steps are stored, and which are computed again. */
int tf_schedule_new(const tf_machine *machine, uint64_t steps, tf_schedule *schedule);

/* Seconds that it takes, and seconds that no schedule beats. Each may be NULL. */
int tf_schedule_times(tf_schedule schedule, double *expected, double *bound);

/* Its next action. */
int tf_schedule_next(tf_schedule schedule, tf_action *action);

int tf_schedule_free(tf_schedule schedule);

/* ---- comparing histories -------------------------------------------------------------------------------------------- */

/* A region of a rank's part of a version whose values differ between two histories. */
typedef struct tf_difference {
    uint64_t version;
    uint64_t elements;  /* of the region; 0: one history lacks it, or has it with another type or shape */
    uint64_t differing; /* of them */
    uint64_t first;     /* the first that differs, counted from 0 in C's order */
    double largest;     /* distance of two elements; infinite where one of two is no number, and with 0 elements */
    uint64_t largest_at;
    uint32_t rank;
    char region[1028]; /* its name, with a zero */
} tf_difference;

/*
 * Compares the versions that two directories, or URLs, have in common, in the order of versions, ranks and regions, and ends once `room`
 * differences are found: with a room of 1, at the first. `count` is how many there are in `found`.
 *
 * `region` is the only region to be compared; "": all. Values differ if they are further apart than `within`, where any two NaN are equal;
 * below 0: if their bits differ. Blocks whose checksums agree are not read. TF_ARGUMENT: there is no version in common, or versions lie
 * there compressed or as differences, which the command `tierflow compare` puts together.
 */
int tf_compare(const char *left, const char *right, const char *region, double within, tf_difference *found, size_t room, size_t *count);

/* ---- another number of ranks ---------------------------------------------------------------------------------------- */

/*
 * The newest version in a directory that all its ranks have, of a smaller number than `before` (UINT64_MAX: of all), and of
 * how many ranks. The directory, or URL, is one that was `external`, or `node_local` alone; nothing is written there.
 */
int tf_find(const char *directory, uint64_t before, uint64_t *version, uint32_t *ranks);

/* Bytes of a rank's part of a version. */
int tf_part_size(const char *directory, uint64_t version, uint32_t rank, uint64_t *bytes);

/* Brings any rank's part of a version into host memory. */
int tf_restore_from(const char *directory, uint64_t version, uint32_t rank, const tf_region *regions, size_t count);

/* Brings regions of it into host memory, by their names. */
int tf_restore_named_from(const char *directory, uint64_t version, uint32_t rank, const tf_named *regions, size_t count);

#ifdef __cplusplus
}
#endif

#endif
