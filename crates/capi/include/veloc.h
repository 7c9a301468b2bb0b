/*
 * VELOC's client API on Tierflow: programs written for it compile and run unchanged.
 *
 * Functions return VELOC_SUCCESS or VELOC_FAILURE unless they say otherwise; what went wrong is written to the standard error,
 * and tf_error_message() of tierflow.h tells it, unless MPI failed in VELOC_Init, or Fortran's module refused an array. None exits. There
 * is one client for each process.
 *
 * Without MPI, define VELOC_WITHOUT_MPI before including this.
 */
#ifndef TIERFLOW_VELOC_H
#define TIERFLOW_VELOC_H

#include "tierflow.h"
#include "veloc/defs.h"

#include <string.h>

#ifndef VELOC_WITHOUT_MPI
#include <mpi.h>
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- the client ----------------------------------------------------------------------------------------------------- */

/*
 * The ranks of `comm` checkpoint together. Collective. `cfg_file` is a configuration file of VELOC's, "" or NULL for none;
 * variables such as VELOC_SCRATCH count more.
 */
#ifndef VELOC_WITHOUT_MPI
int VELOC_Init(MPI_Comm comm, const char *cfg_file);
#endif

/* The same for ranks that meet in another way: see tierflow.h. */
int VELOC_Init_group(const tf_group *group, const char *cfg_file);

/* This process checkpoints for itself; its `id` distinguishes it from others on the same directories. */
int VELOC_Init_single(unsigned int id, const char *cfg_file);

/*
 * Ends the client. Checkpoints are durable before, whatever `drain` says: as long as bytes move, they are waited for. Those that
 * are lost are named on the standard error. A program that returns from main or calls exit() without this call waits as it does,
 * but meets no other ranks: versions whose redundancy passes in calls are lost then.
 */
int VELOC_Finalize(int drain);

/* ---- memory --------------------------------------------------------------------------------------------------------- */

/*
 * Protects `count` elements of `base_size` bytes, of host or GPU memory; those of the same id no more. No two regions that are taken in by
 * one call share bytes.
 */
int VELOC_Mem_protect(int id, void *ptr, size_t count, size_t base_size);

/* The same for checkpoints of one name. They consist of these regions alone if there are any. */
int VELOC_Region_protect(int id, void *ptr, size_t count, size_t base_size, const char *name);

int VELOC_Mem_unprotect(int id);
int VELOC_Mem_clear(void);
int VELOC_Region_unprotect(int id, const char *name);
int VELOC_Region_clear(const char *name);

/* ---- checkpoints ---------------------------------------------------------------------------------------------------- */

/*
 * Begins a checkpoint. Its number is higher than those of its name before: it takes the place of those with higher ones, but for
 * those of earlier runs that this one did not ask for by VELOC_Restart_test. Collective if the configuration has `max_versions`.
 */
int VELOC_Checkpoint_begin(const char *name, int version);

/* Takes in the regions that `mode` chooses (VELOC_CKPT_*), as they are now. */
int VELOC_Checkpoint_selective(int mode, int *ids, int id_count);
int VELOC_Checkpoint_mem(void);

/*
 * Where to write a file of the application's that is part of the checkpoint, after VELOC_Checkpoint_begin; or where to read
 * it, after VELOC_Restart_begin. `routed` has room for VELOC_MAX_NAME bytes. With a persistent directory, the file is copied to
 * `original`, too, once the checkpoint is durable. A checkpoint has one file: another `original` fails.
 */
int VELOC_Route_file(const char *original, char *routed);

/* Ends the checkpoint, which counts if `success` is not 0 on all ranks. Mode sync: durable when this returns. */
int VELOC_Checkpoint_end(int success);

/* Waits until all checkpoints are durable, and says whether they are. */
int VELOC_Checkpoint_wait(void);

/* VELOC_SUCCESS if that need not wait. */
int VELOC_Checkpoint_finished(void);

/* VELOC_Checkpoint_wait, _begin, _mem and _end. */
int VELOC_Checkpoint(const char *name, int version);

/* Gives up what the scratch directory holds of a name. What lies in the persistent directory stays. */
int VELOC_Cleanup(const char *name);

/* ---- restarts ------------------------------------------------------------------------------------------------------- */

/*
 * The newest version that all ranks have, no newer than `version`, or the newest of all if that is 0; VELOC_FAILURE if there
 * is none. Collective: it waits for the other ranks, as MPI does, unless the configuration has `group_patience`. VELOC_UNKNOWN,
 * which is less than VELOC_FAILURE, if it cannot find out. If ranks did not come in time, this client takes no checkpoint any
 * more, so that none takes the place of what is there: call VELOC_Finalize, and start all ranks together.
 */
int VELOC_Restart_test(const char *name, int version);

/* Begins a restart, on all ranks or on none. Collective. */
int VELOC_Restart_begin(const char *name, int version);

/* The same for what another rank wrote, in a group of any size. Not collective; less than 0 is as the functions above. */
int VELOC_Restart_test_rank(const char *name, int version, int rank);
int VELOC_Restart_begin_rank(const char *name, int version, int rank);

/* Brings the regions back that `mode` chooses (VELOC_RECOVER_*). They may be larger than what was saved. */
int VELOC_Recover_selective(int mode, int *ids, int id_count);
int VELOC_Recover_mem(void);

/* Bytes that were saved of a region; VELOC_FAILURE if there is none, or if an int does not hold them. */
int VELOC_Recover_size(int id);
int64_t VELOC_Recover_bytes(int id);

int VELOC_Restart_end(int success);

/* VELOC_Restart_begin, VELOC_Recover_mem and VELOC_Restart_end. Collective. */
int VELOC_Restart(const char *name, int version);

/* ---- prefetches ----------------------------------------------------------------------------------------------------- */

/*
 * As in Listing 1 of HPDC'23 (https://doi.org/10.1145/3588195.3592987), whose calls have no checkpoint's name: they are about the
 * name that was begun or restarted from last, and about any other if that has no such version.
 */

/* This version is restarted from after those that were enqueued before: in any order, and before it is taken or later. */
int VELOC_Prefetch_enqueue(int version);

/* They are brought up from now on. The first restart begins it, too. */
int VELOC_Prefetch_start(void);

/* Bytes that were saved of a region; -1 if there is no such version or region. C++: VELOC_Recover_size(version, id). */
int64_t VELOC_Recover_size_of(int version, int id);

/* VELOC_Restart by the version alone. Collective. C++: VELOC_Restart(version). */
int VELOC_Restart_version(int version);

/* ---- beyond VELOC --------------------------------------------------------------------------------------------------- */

/* Calls `observer` whenever a checkpoint was ended (`type` is VELOC_OBSERVE_CKPT_END), on the thread that ended it. */
typedef void (*VELOC_observer)(void *context, const char *name, int version);
int VELOC_Observe(int type, VELOC_observer observer, void *context);

/* The engine below, for its report, metrics and time line; 0 if there is none. It ends with the client. */
tf_engine VELOC_Engine(void);

#ifdef __cplusplus
}

/* The calls of that listing. */
inline int VELOC_Mem_protect(int id, void *ptr, size_t size)
{
    return VELOC_Mem_protect(id, ptr, size, 1);
}

inline int64_t VELOC_Recover_size(int version, int id)
{
    return VELOC_Recover_size_of(version, id);
}

inline int VELOC_Restart(int version)
{
    return VELOC_Restart_version(version);
}
#endif

#endif
