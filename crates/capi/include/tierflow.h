/*
 * Tierflow from C: a checkpoint cache over GPU memory, host memory, disk and external storage.
 *
 * Every function returns a tf_status unless its comment says otherwise, and may be called from any thread. No function aborts, exits
 * or throws. After an error, tf_error_message() says what failed and what to do. tf_mpi_group() and the modules for Fortran write the
 * errors that they find themselves to the standard error instead.
 *
 * Handles name engines, options and slots. A call with a handle that was closed, or that a parent process opened before a fork, returns
 * TF_CLOSED; the library never follows such a handle.
 *
 * Structures that are passed by pointers keep their size and their members as long as the library keeps its soname (libtierflow.so.0.1):
 * a program that was compiled with an older header of that soname runs on a newer library. New features come as new option names and new
 * functions. A release that changes a structure has another soname, and other symbol versions.
 */
#ifndef TIERFLOW_H
#define TIERFLOW_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The release of this header; tf_version() returns the release of the library. A header and a library are compatible if their
 * TIERFLOW_VERSION_MAJOR is the same, and, while it is 0, if their TIERFLOW_VERSION_MINOR is the same, too. */
#define TIERFLOW_VERSION "0.1.0"
#define TIERFLOW_VERSION_MAJOR 0
#define TIERFLOW_VERSION_MINOR 1
#define TIERFLOW_VERSION_PATCH 0

/* The result of a call. Each comment says what the caller does next. */
enum tf_status {
    TF_OK = 0,
    TF_ARGUMENT = 1,  /* correct the call, or the options */
    TF_UNKNOWN = 2,   /* there is no such version: ask for another */
    TF_NO_ROOM = 3,   /* discard or restore versions, or enlarge a tier; then call again */
    TF_TIMED_OUT = 4, /* the work goes on in the background: wait again, or continue without it */
    TF_STALLED = 5,   /* versions could not get to the lowest tier and stay where they are: repair the tier, wait again */
    TF_DAMAGED = 6,   /* this version cannot be read: continue from an older one */
    TF_STORAGE = 7,   /* check the storage */
    TF_DEVICE = 8,    /* check the GPU, or the memory of the machine */
    TF_GROUP = 9,     /* the ranks did not meet or do not agree: start all of them together */
    TF_CLOSED = 10,   /* the handle is closed, or belongs to another process: open another one */
    TF_INTERNAL = 11  /* a defect of the library: report it */
};

/* Returns the error of the last call of this thread that failed. The text is valid until the next call of this thread fails. Never NULL. */
const char *tf_error_message(void);

/* Returns the release of the library, such as "0.1.0". */
const char *tf_version(void);

/* ---- the log -------------------------------------------------------------------------------------------------------- */

enum tf_log_level {
    TF_LOG_OFF = 0,
    TF_LOG_ERROR = 1, /* versions that are lost */
    TF_LOG_WARN = 2,  /* versions that a suspension gave up, storage that cannot be used, copies that are slower than asked for, and
                       * ranks that the others wait for */
    TF_LOG_INFO = 3,  /* the versions that each start found */
    TF_LOG_DEBUG = 4
};

/* Writes a line of the log. The line names the rank and the host if there are several. The library calls this function from any thread;
 * `line` is valid until the function returns. */
typedef void (*tf_log_line)(void *context, int level, const char *line);

/*
 * Sends the log, up to a tf_log_level, to the function `line` from now on; to the standard error if `line` is NULL. Without this call, the
 * library logs to the standard error up to the level that the variable TIERFLOW_LOG names: off, error, warn, info or debug; else warn.
 */
int tf_log(int level, tf_log_line line, void *context);

/* ---- options -------------------------------------------------------------------------------------------------------- */

typedef uint64_t tf_options;

/*
 * Makes options. The first values come from the file that the variable TIERFLOW_CONFIG names, or from /etc/tierflow.conf if it exists:
 * lines such as "host_cache = 4GiB". tf_options_set() replaces them. TF_STORAGE: the file cannot be read. TF_ARGUMENT: a line of the
 * file is wrong.
 */
int tf_options_new(tf_options *options);

/*
 * Chooses something by its name, the same in every language. Bytes are numbers such as "1000" or "512MiB"; times are seconds. In paths
 * and URLs, $NAME and ${NAME} stand for variables of the environment, and $$ stands for a dollar.
 *
 *   device            auto | host | cuda | cuda:N               auto: the first GPU if there is one
 *   device_cache      bytes of GPU memory to keep checkpoints in
 *   device_growth     incremental | direct: the GPU cache is mapped in the background, or in one call at the start
 *   evict_while_growing  true | false: whether a GPU cache that still grows evicts versions
 *   peers             memory of other GPUs as the tier below the GPU cache: "cuda:1=8GiB, cuda:2=8GiB"
 *   overflow          bytes by which a group checkpoint is larger than each GPU's cache: "cuda:0=4GiB, cuda:3=2GiB"; the engine then
 *                     uses as much of the memory in peers as the min-time max-flow schedule sends there
 *   machine           file with the links' rates for that schedule; the engine measures them and writes the file if it is missing
 *   host_cache        bytes of host memory
 *   host_growth       needed | full: host memory is made ready ahead of its use, or all of it at once
 *   host_lead         bytes of host memory that are pinned ahead of their use
 *   host_pool         bytes of host memory that engines of this user on this machine share if they name the same pool; replaces
 *                     host_cache. host_pool_directory: where the pool lies. host_pool_slab: bytes that engines give each other at a time
 *   scratch           directory for a file that is deleted with the engine; or several directories on different file systems, with
 *                     colons between them: each write goes to the one that is predicted to finish it first
 *   storage_limit     bytes of the scratch file, or of all scratch files together
 *   scratch_checksums  true | false: whether reads from the scratch file are compared with checksums; default true
 *   direct_io         never | measured | always: whether cuFile copies between GPU memory and the scratch file
 *   node_local        directory of this node in which versions outlive the process
 *   node_local_limit  bytes in node_local; versions that also lie on external storage are evicted from it
 *   external          directory, such as of a parallel file system, in which versions outlive the node; or an object store:
 *                     s3://bucket/prefix, gs://…, az://…, with the credentials and addresses of the environment (AWS_…)
 *   agent             directory in which an agent runs, started as "tierflow-agent DIRECTORY": the agent copies versions from node_local
 *                     to the directory external, also after this process ended; if no agent answers, this process copies them
 *   agent_program     path of the program tierflow-agent; the engine starts it if no agent answers
 *   keep_newest       versions to keep on storage; keep_every keeps every n-th version, too, and keep_younger_than the versions that are
 *                     younger than n seconds
 *   after_restore     keep | discard: the fate of a version that was restored
 *   flush             needed | eager: versions are flushed when room is needed, or at once
 *   durable_in_order  true | false: whether versions become durable in the order of their numbers
 *   policy            residency | score | lru | fifo: the expected order of use; the version with the last use is evicted first
 *   dedup             bytes of a chunk: versions that leave the fastest tier are stored as differences
 *   dedup_reads       checkpoints whose bytes a restore of a difference reads, at most: 2, or more to store less
 *   compress          type of the values, such as f32: versions that leave the fastest tier are compressed, losslessly except for
 *                     regions that are named with an error, as a share of their largest value: "f32, wave = 1e-3". With dedup, the
 *                     differences are compressed, and no such regions are allowed. "f32, storage" compresses what goes to
 *                     scratch and below, "f32, external" what goes to node_local and external; both without dedup.
 *                     With "f32, nvcomp-lz4" or "f32, nvcomp-zstd", the system's libnvcomp compresses on the GPU
 *   timeline          entries of the time line
 *   statistics        file to which the engine writes tf_statistics when it ends: %r in the path is the rank, %h the host, %p the process
 *   rank, ranks, run  this rank, the number of ranks, and the number of this run, for an engine without a tf_group
 *   group_patience    seconds that the ranks of a group wait for each other; default 300
 *   redundancy        none | partner | xor:8 | rs:8+2: the data that other ranks of the group keep so that node_local outlives
 *                     nodes: copies in pairs, one parity in sets of 8, 2 parities in sets of 10
 *   refuse_losses     true | false: whether all ranks refuse to open their engines if more is lost than redundancy can rebuild
 *   failure_domain    name of the unit that fails as a whole and that this rank is part of, such as a rack; default: the host's name
 *   exchange          directory that all nodes see; redundancy passes through it if the group has no send and receive
 *   closing_patience  seconds that closing waits for storage after the last byte got there; default 60
 *
 * Without any cache or directory there is no engine.
 */
int tf_options_set(tf_options options, const char *key, const char *value);

int tf_options_free(tf_options options);

typedef uint64_t tf_host_pool;

/*
 * Makes a pool of host memory that the engines of this process share in the place of host_cache. Each engine gets an equal part when it
 * wants it, and borrows idle memory of the others, `slab` bytes at a time; 0 is the default. An engine that uses a pool keeps it open
 * after tf_host_pool_free().
 */
int tf_host_pool_new(uint64_t bytes, uint64_t slab, tf_host_pool *pool);
int tf_options_set_pool(tf_options options, tf_host_pool pool);
int tf_host_pool_free(tf_host_pool pool);

/* ---- groups --------------------------------------------------------------------------------------------------------- */

/*
 * Gives `bytes` bytes of `mine` to all ranks, and writes the bytes of every rank, in the order of the ranks, to `all`.
 * Every rank calls the function at about the same time, with the same `bytes`. Returns 0, or anything else if some rank did not call it
 * within `seconds`.
 */
typedef int (*tf_all_gather)(void *context, const void *mine, void *all, size_t bytes, double seconds);

/*
 * Sends a message to a rank. May wait until earlier messages were received, `seconds` at most, but does not wait for this message; the
 * caller may change the bytes afterwards. Messages from one rank to another arrive once, and in their order.
 * Returns 0, TF_TIMED_OUT, or anything else if it failed.
 */
typedef int (*tf_send)(void *context, uint32_t to, const void *message, size_t bytes, double seconds);

/*
 * Receives the next message of a rank. Waits for it `seconds` at most, and sets `bytes` to its length. A message that is longer than
 * `room` is not received: the next call receives it. Returns 0, TF_TIMED_OUT, or anything else if it failed.
 */
typedef int (*tf_receive)(void *context, uint32_t from, void *message, size_t room, size_t *bytes, double seconds);

/* Waits until no sent message needs further calls of this rank to arrive. Returns as tf_send does. */
typedef int (*tf_flush)(void *context, double seconds);

/*
 * The ranks of an application that checkpoint together: a version counts when every rank's part of it is durable.
 * tf_mpi_group() of tierflow_mpi.h makes a group of an MPI communicator.
 */
typedef struct tf_group {
    uint32_t rank;
    uint32_t ranks;
    uint64_t run;                   /* number of the run: the same for all ranks, another one after each restart; 0: rank 0 draws it */
    tf_all_gather all_gather;       /* called only within calls of the application, on their threads, one at a time */
    void (*release)(void *context); /* called once, when the engine is closed or could not be opened; may be NULL */
    void *context;

    /*
     * The functions for redundancy: NULL if there is none, or if it passes through the `exchange` directory. The library calls one of
     * them at a time.
     *
     * If `threads` is not 0, a thread of the library may call them while the application and all_gather use the network, too: an MPI
     * that was initialised with MPI_THREAD_MULTIPLE allows this. Redundancy is made in the background then.
     *
     * If `threads` is 0, the library calls them only within tf_open, tf_wait, tf_protect and tf_close, on the thread that called these.
     * All ranks of the group then make these calls in the same order, at about the same time.
     */
    tf_send send;
    tf_receive receive;
    tf_flush flush; /* may be NULL if nothing has to be waited for */
    int threads;
} tf_group;

/* ---- engines -------------------------------------------------------------------------------------------------------- */

typedef uint64_t tf_engine;

/*
 * Opens an engine. With a group this is collective: all ranks then hold the same versions, and the newest of them is the newest
 * that every rank has. `group` may be NULL. The options may be freed afterwards.
 */
int tf_open(tf_options options, const tf_group *group, tf_engine *engine);

/*
 * Waits until all versions lie on the lowest tier, if that tier outlives the engine, and ends the engine. Versions that a suspension gave
 * up are not waited for; the log names them. If the call fails, the engine stays open: remove the cause and close it again, or give up
 * the versions that are not durable with tf_end(). TF_ARGUMENT: slots are still lent, or other threads are in a call. While this call
 * waits, calls of other threads with the same handle return TF_CLOSED, even if this call fails in the end.
 *
 * If an engine is still open when the process exits, the library waits as tf_close() does, and names lost versions in the log. If its
 * redundancy passes through the functions of its tf_group, the library does not wait, as MPI may have ended by then: close such an
 * engine before MPI_Finalize.
 */
int tf_close(tf_engine engine);

/*
 * Ends the engine without waiting. TF_OK: no version is lost. TF_ARGUMENT, as for tf_close(): the engine stays open. After any other
 * error, the engine has ended, and tf_error_message() names the lost versions.
 */
int tf_end(tf_engine engine);

/* The memory of a region. */
enum tf_place {
    TF_PLACE_ANY = 0, /* the driver is asked, which takes a microsecond; TF_ARGUMENT for memory of a GPU that is not the engine's */
    TF_PLACE_HOST = 1,
    TF_PLACE_DEVICE = 2 /* the engine's GPU; TF_ARGUMENT if it has none */
};

/* Bytes of the application. Regions of one call that are restored to must not overlap. */
typedef struct tf_region {
    void *address;
    uint64_t bytes;
    int32_t place; /* an enum tf_place */
} tf_region;

/* The order and the longest wait of a call. In the place of a tf_call, NULL means: after all work given to the GPU, without a limit. */
typedef struct tf_call {
    void *stream;   /* a cudaStream_t of the engine's GPU: the copy comes after its work. NULL: after all work. */
    double seconds; /* to wait for room, bytes or storage at most; 0 or less: without a limit */
} tf_call;

/*
 * Takes in the regions, one after the other, as `version`, and returns when they are copied: the caller may change them at once.
 * No two checkpoints have the same version. Flushes to lower tiers go on in the background.
 */
int tf_checkpoint(tf_engine engine, uint64_t version, const tf_region *regions, size_t count, const tf_call *call);

/* Brings a version back. The regions together have as many bytes as the version, but may be divided in another way. */
int tf_restore(tf_engine engine, uint64_t version, const tf_region *regions, size_t count, const tf_call *call);

/* A region that can be brought back alone. Names have 1 to 1024 bytes. */
typedef struct tf_named {
    const char *name;
    tf_region region;
} tf_named;

/* Takes in regions as tf_checkpoint() does, with their names. Files on storage have the names, too. */
int tf_checkpoint_named(tf_engine engine, uint64_t version, const tf_named *regions, size_t count, const tf_call *call);

/*
 * Brings these regions of a version back, in any order. Each has as many bytes as it had. The version stays held, and is not consumed.
 * A version that was checkpointed without names has one region, "checkpoint".
 */
int tf_restore_named(tf_engine engine, uint64_t version, const tf_named *regions, size_t count, const tf_call *call);

/* Writes the name of region `index`, counted from 0, as far as it fits, and sets `bytes`; both may be NULL. TF_UNKNOWN: `index` is too large. */
int tf_region_at(tf_engine engine, uint64_t version, size_t index, char *name, size_t room, uint64_t *bytes);

/* Sets `bytes` to the bytes of a region. TF_ARGUMENT: the version has no region of this name. */
int tf_region_size(tf_engine engine, uint64_t version, const char *name, uint64_t *bytes);

/*
 * Brings regions of any rank's part of a version into host memory. The part is read from the `external` directory of the group: a version
 * lies there once it is durable on all ranks.
 */
int tf_restore_rank(tf_engine engine, uint64_t version, uint32_t rank, const tf_named *regions, size_t count);

/*
 * Tells the engine which versions will be restored, in this order, after the versions that were hinted before. The engine brings them up
 * ahead of time. Hints are advice: wrong, missing and late hints cost time, never correctness.
 */
int tf_hint(tf_engine engine, const uint64_t *versions, size_t count);

/*
 * Tells the engine which versions will be restored, in this order, before all versions that are hinted: states that the application needs
 * first. Hinted versions keep their room in the caches, so hint them only shortly before their use.
 */
int tf_hint_next(tf_engine engine, const uint64_t *versions, size_t count);

/* Withdraws all hints. */
int tf_forget_hints(tf_engine engine);

/* Withdraws the hints of these versions only, so that each of several users of one engine can withdraw its own hints. */
int tf_forget_hints_of(tf_engine engine, const uint64_t *versions, size_t count);

/*
 * Reserves `count` consecutive numbers for new versions, and sets `first` to the first. The numbers are larger than those of all versions
 * that this engine has or had, of all hints, and of earlier calls. Thus several users of one engine never choose the same number.
 */
int tf_reserve(tf_engine engine, uint64_t count, uint64_t *first);

/* Starts prefetching; the first restore starts it, too. */
int tf_prefetch_start(tf_engine engine);

/* Discards a version, restored or not. */
int tf_discard(tf_engine engine, uint64_t version);

/* Waits until all versions, or one version, lie on the lowest tier: `seconds` at most; without a limit if `seconds` is less than 0. */
int tf_wait(tf_engine engine, double seconds);
int tf_wait_version(tf_engine engine, uint64_t version, double seconds);

/*
 * Makes the redundancy of the versions that lie on the nodes of the ranks, and returns when the ranks have stored it: see tf_group. If
 * redundancy is made in the background, waits for that. Without redundancy, does nothing. tf_wait first waits for all versions, and then
 * does the same.
 */
int tf_protect(tf_engine engine);

/* Sets `durable` to 1 if the version is durable, else to 0. */
int tf_is_durable(tf_engine engine, uint64_t version, int *durable);

/* Sets `keeps` to 1 if the engine keeps versions that were restored, and to 0 if it discards them (`after_restore`). */
int tf_keeps_restored(tf_engine engine, int *keeps);

/* Sets `version` to the newest version held with a smaller number than `before`; UINT64_MAX: the newest of all. TF_UNKNOWN: there is none. */
int tf_latest(tf_engine engine, uint64_t before, uint64_t *version);

/* Sets `bytes` to the bytes of a version. */
int tf_size(tf_engine engine, uint64_t version, uint64_t *bytes);

/* Writes the first `room` of the versions held, in ascending order, and sets `count` to the number of all versions held. */
int tf_versions(tf_engine engine, uint64_t *versions, size_t room, size_t *count);

/*
 * Shrinks a cache to its first `bytes` bytes and gives the other memory back; or lets it grow again, up to the size that it was opened
 * with. Sets `usable` to the bytes that the cache uses now; `usable` may be NULL.
 */
int tf_resize_device_cache(tf_engine engine, size_t bytes, double seconds, uint64_t *usable);
int tf_resize_host_cache(tf_engine engine, size_t bytes, double seconds, uint64_t *usable);

/* ---- a preempted job ----------------------------------------------------------------------------------------------- */

typedef struct tf_suspension {
    uint64_t version; /* the version that is durable, or will be; UINT64_MAX if no version can be durable in time */
    uint64_t newest;  /* the newest version that was held; UINT64_MAX if there was none */
    double seconds;   /* until `version` is durable; less than 0 if nothing was measured yet */
} tf_suspension;

/*
 * Tells the engine that the job is preempted in `seconds`. The engine makes the newest version durable that can be durable by then, before
 * anything else moves, and past all tiers between. Returns at once, and names the version in `suspension`; tf_is_durable() tells when it
 * is durable, and tf_suspend_wait() waits for it. Once this version is durable, a checkpoint, a restore or a wait resumes all other work.
 */
int tf_suspend(tf_engine engine, double seconds, tf_suspension *suspension);

/* Does the same for this version: the smallest of the versions that tf_suspend() returned to the ranks. */
int tf_suspend_to(tf_engine engine, uint64_t version, double seconds, tf_suspension *suspension);

/* Suspends as tf_suspend_to() does, and waits until the version is durable. TF_TIMED_OUT: it is not durable after `seconds`. */
int tf_suspend_wait(tf_engine engine, uint64_t version, double seconds);

/* Sets `seconds` to the time until a version is durable if the job is suspended now: 0 if it is, less than 0 if nothing was measured. */
int tf_time_to_durable(tf_engine engine, uint64_t version, double *seconds);

typedef uint64_t tf_notice;

/*
 * Opens a notice. When one of these signals comes, the notice is given: the job has `grace` seconds left from then on. The signals lose
 * their earlier effect. Without signals, only tf_notice_give() gives the notice.
 */
int tf_notice_open(const int *signals, size_t count, double grace, tf_notice *notice);

/* Gives the notice: the job has `grace` seconds left from now on. Does nothing if the notice was given before. */
int tf_notice_give(tf_notice notice, double grace);

/* Sets `seconds` to the seconds that are left: INFINITY until the notice is given. */
int tf_notice_left(tf_notice notice, double *seconds);

int tf_notice_close(tf_notice notice);

/* ---- in place ------------------------------------------------------------------------------------------------------- */

typedef uint64_t tf_slot;

enum tf_slot_end_how {
    TF_GIVE_UP = 0, /* a slot to write: there is no version; a slot to read: the version is not consumed */
    TF_FINISH = 1,  /* a slot to write: its bytes are the version; a slot to read: the version is consumed */
    TF_DROP = 2     /* as TF_GIVE_UP, for good: if the GPU can order nothing now, a thread of the library tries again */
};

/* Lends room in the fastest tier. The application writes the version there, without a copy, and ends the slot with TF_FINISH. */
int tf_produce(tf_engine engine, uint64_t version, size_t bytes, tf_slot *slot, void **address);

/* Lends the cached copy of a version, to be read. */
int tf_consume(tf_engine engine, uint64_t version, tf_slot *slot, const void **address, size_t *bytes);

/* Do the same, and wait for room or bytes `seconds` at most; without a limit if `seconds` is less than 0. */
int tf_produce_within(tf_engine engine, uint64_t version, size_t bytes, double seconds, tf_slot *slot, void **address);
int tf_consume_within(tf_engine engine, uint64_t version, double seconds, tf_slot *slot, const void **address, size_t *bytes);

/*
 * Ends a loan; `how` is an enum tf_slot_end_how. On a GPU, the bytes count as written, or read, once the work given to `stream` is done;
 * NULL: all work given to the GPU. The call does not wait for that work, and the bytes are not reused before. If the call fails, the slot
 * stays lent, unless the GPU is lost. With TF_DROP, `stream` is not used, and only a slot that is not lent, or is in use, fails: during the
 * capture of a CUDA graph, the bytes stay lent until a later attempt, and each attempt makes the graphs invalid that are being captured.
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
    uint64_t restores_from[6]; /* restores and consumes by the tier that held the version, the fastest tier first */
} tf_metrics;

int tf_metrics_read(tf_engine engine, tf_metrics *metrics);

/* Writes metrics, damage and losses as text, as far as it fits into `size` bytes with a final zero. Sets `length` to the bytes of the whole
 * text without the zero; `length` may be NULL. */
int tf_report(tf_engine engine, char *buffer, size_t size, size_t *length);

/* Writes the metrics in the text format of OpenMetrics, which Prometheus reads. The arguments are those of tf_report(). */
int tf_open_metrics(tf_engine engine, char *buffer, size_t size, size_t *length);

/* Writes metrics, damage and losses as a JSON document. The arguments are those of tf_report(). */
int tf_statistics(tf_engine engine, char *buffer, size_t size, size_t *length);

/* Writes the time line to a file that Perfetto and chrome://tracing open. */
int tf_write_timeline(tf_engine engine, const char *path);

/* ---- schedules of reversed computations ----------------------------------------------------------------------------- */

/* A tier below the device: bytes for states, and bytes per second down to the tier and up from it. */
typedef struct tf_tier {
    uint64_t room; /* UINT64_MAX: room for all states */
    double down;
    double up;
} tf_tier;

/* A computation, and the memories that its states can lie in. */
typedef struct tf_machine {
    double forward;  /* seconds of a step */
    double backward; /* seconds of a reversed step */
    uint64_t state;  /* bytes of a state */
    uint64_t device; /* bytes of the fastest tier for states */
    double copy;     /* bytes per second to and from the fastest tier; 0: these copies take no time */
    tf_tier tiers[5];
    size_t count; /* number of tiers */
} tf_machine;

/* Fills `machine` with the tiers of an engine and the rates of its transfers so far. */
int tf_machine_measure(tf_engine engine, double forward, double backward, uint64_t state, tf_machine *machine);

/* Sets `seconds` to a lower bound: no schedule of `steps` steps takes less time. */
int tf_machine_bound(const tf_machine *machine, uint64_t steps, double *seconds);

typedef uint64_t tf_schedule;

enum tf_action_kind {
    TF_ENDED = 0,       /* there is no further action */
    TF_FORWARD = 1,     /* compute the states after `step`, up to the state of `to` */
    TF_SAVE = 2,        /* store the state of `step`, which is the current state */
    TF_END_FORWARD = 3, /* the state after the last step is computed for the first time */
    TF_RESTART = 4,     /* bring the state of `step` back; it stays stored */
    TF_REVERSE = 5,     /* reverse `step`, whose state is the current state */
    TF_FORGET = 6       /* give up the stored state of `step` */
};

typedef struct tf_action {
    int kind; /* an enum tf_action_kind */
    uint64_t step;
    uint64_t to;
} tf_action;

/* Makes the schedule that takes the least time: it says which states of `steps` steps are stored, and which are computed again. */
int tf_schedule_new(const tf_machine *machine, uint64_t steps, tf_schedule *schedule);

/* Sets `expected` to the seconds that the schedule takes, and `bound` to the seconds that no schedule beats. Both may be NULL. */
int tf_schedule_times(tf_schedule schedule, double *expected, double *bound);

/* Sets `action` to the next action of the schedule. */
int tf_schedule_next(tf_schedule schedule, tf_action *action);

int tf_schedule_free(tf_schedule schedule);

/* ---- comparing histories -------------------------------------------------------------------------------------------- */

/* A region of a rank's part of a version whose values differ between two histories. */
typedef struct tf_difference {
    uint64_t version;
    uint64_t elements;  /* number of the region's elements; 0: one history lacks the region, or has it with another type or shape */
    uint64_t differing; /* number of elements that differ */
    uint64_t first;     /* index of the first element that differs, counted from 0 in C's order */
    double largest;     /* largest distance of two elements; infinite if only one of two is a number, and with 0 elements */
    uint64_t largest_at; /* index of the element with the largest distance */
    uint32_t rank;
    char region[1028]; /* the region's name, with a zero */
} tf_difference;

/*
 * Compares the versions that two directories, or URLs, have in common, in the order of versions, ranks and regions, and ends once `room`
 * differences are found: with a room of 1, at the first. Sets `count` to the number of differences in `found`.
 *
 * `region` is the only region to compare; "": all. Values differ if their distance is larger than `within`; any two NaN are equal then. If
 * `within` is less than 0, values differ if their bits differ. Blocks with equal checksums are not read. TF_ARGUMENT: there is no version
 * in common, or the versions are stored compressed or as differences; the command `tierflow compare` decodes such versions.
 */
int tf_compare(const char *left, const char *right, const char *region, double within, tf_difference *found, size_t room, size_t *count);

/* ---- another number of ranks ---------------------------------------------------------------------------------------- */

/*
 * Sets `version` to the newest version in a directory that all its ranks have, with a smaller number than `before` (UINT64_MAX: the newest
 * of all), and `ranks` to its number of ranks. The directory, or URL, was the option `external` of an engine, or `node_local` of an engine
 * without `external`. Nothing is written there.
 */
int tf_find(const char *directory, uint64_t before, uint64_t *version, uint32_t *ranks);

/* Sets `bytes` to the bytes of a rank's part of a version. */
int tf_part_size(const char *directory, uint64_t version, uint32_t rank, uint64_t *bytes);

/* Brings any rank's part of a version into host memory. */
int tf_restore_from(const char *directory, uint64_t version, uint32_t rank, const tf_region *regions, size_t count);

/* Brings regions of any rank's part of a version into host memory, by their names. */
int tf_restore_named_from(const char *directory, uint64_t version, uint32_t rank, const tf_named *regions, size_t count);

#ifdef __cplusplus
}
#endif

#endif
