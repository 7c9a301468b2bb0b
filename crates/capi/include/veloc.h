/*
 * VELOC's client API on Tierflow: programs written for it compile and run unchanged.
 *
 * Functions return VELOC_SUCCESS or VELOC_FAILURE unless their comment says otherwise. Errors are written to the standard error;
 * tf_error_message() of tierflow.h returns them, too, unless MPI failed in VELOC_Init, or Fortran's module refused an array. No function
 * exits. A process has one client.
 *
 * Without MPI, define VELOC_WITHOUT_MPI before including this file.
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
 * Opens a client whose group is the ranks of `comm`. Collective. `cfg_file` is a configuration file of VELOC, "" or NULL for none;
 * variables of the environment such as VELOC_SCRATCH replace its values.
 */
#ifndef VELOC_WITHOUT_MPI
int VELOC_Init(MPI_Comm comm, const char *cfg_file);
#endif

/* Opens a client for ranks that meet without MPI: see tf_group in tierflow.h. */
int VELOC_Init_group(const tf_group *group, const char *cfg_file);

/* Opens a client for this process alone; `id` distinguishes the process from others that use the same directories. */
int VELOC_Init_single(unsigned int id, const char *cfg_file);

/*
 * Ends the client. Waits for all checkpoints to become durable as long as bytes move, whatever `drain` says, and names lost checkpoints
 * on the standard error. A program that returns from main or calls exit() without this call waits in the same way, but meets no other
 * ranks: versions whose redundancy passes in calls of the group are lost then. VELOC_FAILURE: another thread is in a call of VELOC; then
 * the client is as it was. Calls of other threads with the handle of VELOC_Engine() are waited for, and further ones return TF_CLOSED.
 */
int VELOC_Finalize(int drain);

/* ---- memory --------------------------------------------------------------------------------------------------------- */

/*
 * Protects `count` elements of `base_size` bytes, of host or GPU memory, in the place of an earlier region with the same id. No two regions
 * that one call takes in may share bytes.
 */
int VELOC_Mem_protect(int id, void *ptr, size_t count, size_t base_size);

/* Protects memory for checkpoints of one name. Once a name has such regions, its checkpoints consist of them alone. */
int VELOC_Region_protect(int id, void *ptr, size_t count, size_t base_size, const char *name);

int VELOC_Mem_unprotect(int id);
int VELOC_Mem_clear(void);
int VELOC_Region_unprotect(int id, const char *name);
int VELOC_Region_clear(const char *name);

/* ---- checkpoints ---------------------------------------------------------------------------------------------------- */

/*
 * Begins a checkpoint, with a higher version than those of its name before. A program that went back to an older version may use a lower
 * one: the new checkpoint replaces the checkpoints of its name with the same or a higher version. Higher versions of earlier runs stay if
 * this run never asked for them with VELOC_Restart_test. Collective if the configuration has `max_versions`.
 */
int VELOC_Checkpoint_begin(const char *name, int version);

/* Takes in the regions that `mode` chooses (VELOC_CKPT_*), as they are now. */
int VELOC_Checkpoint_selective(int mode, int *ids, int id_count);
int VELOC_Checkpoint_mem(void);

/*
 * Writes to `routed` the path to which the application writes a file of the checkpoint, after VELOC_Checkpoint_begin; or the path from
 * which it reads the file, after VELOC_Restart_begin. `routed` has room for VELOC_MAX_NAME bytes. With a persistent directory, the file is
 * copied to `original`, too, once the checkpoint is durable. A checkpoint has one file: a call with another `original` fails.
 */
int VELOC_Route_file(const char *original, char *routed);

/* Ends the checkpoint, which counts if `success` is not 0 on all ranks. In mode sync, it is durable when this call returns. */
int VELOC_Checkpoint_end(int success);

/* Waits until all checkpoints are durable. VELOC_FAILURE: some could not be made durable. */
int VELOC_Checkpoint_wait(void);

/* Returns VELOC_SUCCESS if VELOC_Checkpoint_wait would return at once. */
int VELOC_Checkpoint_finished(void);

/* Calls VELOC_Checkpoint_wait, _begin, _mem and _end. */
int VELOC_Checkpoint(const char *name, int version);

/* Removes the checkpoints of a name from the scratch directory. The persistent directory keeps them. */
int VELOC_Cleanup(const char *name);

/* ---- restarts ------------------------------------------------------------------------------------------------------- */

/*
 * Returns the newest version that all ranks have and that is no newer than `version`; if `version` is 0, the newest of all. VELOC_FAILURE
 * if there is none. VELOC_UNKNOWN, which is less than VELOC_FAILURE, if an error hides the answer. Collective: the call waits for the
 * other ranks without a limit, as MPI does, unless the configuration has `group_patience`. If ranks did not come in time, this client
 * takes no further checkpoints, so that none replaces an existing one: call VELOC_Finalize, and start all ranks together.
 */
int VELOC_Restart_test(const char *name, int version);

/* Begins a restart, on all ranks or on none. Collective. */
int VELOC_Restart_begin(const char *name, int version);

/* Do the same for the checkpoints of another rank, in a group of any size. Not collective. With a `rank` less than 0, they are the two
 * functions above. */
int VELOC_Restart_test_rank(const char *name, int version, int rank);
int VELOC_Restart_begin_rank(const char *name, int version, int rank);

/* Brings the regions back that `mode` chooses (VELOC_RECOVER_*). A region may be larger than the bytes that were saved of it. */
int VELOC_Recover_selective(int mode, int *ids, int id_count);
int VELOC_Recover_mem(void);

/* Return the bytes that were saved of a region; VELOC_FAILURE if there is no such region, or if an int cannot hold them. */
int VELOC_Recover_size(int id);
int64_t VELOC_Recover_bytes(int id);

int VELOC_Restart_end(int success);

/* Calls VELOC_Restart_begin, VELOC_Recover_mem and VELOC_Restart_end. Collective. */
int VELOC_Restart(const char *name, int version);

/* ---- prefetches ----------------------------------------------------------------------------------------------------- */

/*
 * The calls of Listing 1 of HPDC'23 (https://doi.org/10.1145/3588195.3592987), which have no checkpoint's name: they use the name that was
 * begun or restarted from last, or any other name if that one has no such version.
 */

/* Tells the client that the program restarts from this version after the versions that were enqueued before. The versions may come in any
 * order, and before or after their checkpoints are taken. */
int VELOC_Prefetch_enqueue(int version);

/* Starts prefetching the enqueued versions; the first restart starts it, too. */
int VELOC_Prefetch_start(void);

/* Returns the bytes that were saved of a region; -1 if there is no such version or region. C++: VELOC_Recover_size(version, id). */
int64_t VELOC_Recover_size_of(int version, int id);

/* Does what VELOC_Restart does, by the version alone. Collective. C++: VELOC_Restart(version). */
int VELOC_Restart_version(int version);

/* ---- beyond VELOC --------------------------------------------------------------------------------------------------- */

/* Calls `observer` from now on after the end of each checkpoint (`type` is VELOC_OBSERVE_CKPT_END), on the thread that ended it. */
typedef void (*VELOC_observer)(void *context, const char *name, int version);
int VELOC_Observe(int type, VELOC_observer observer, void *context);

/* Returns the client's engine, for its report, metrics and time line; 0 if there is no client. The engine ends with the client. */
tf_engine VELOC_Engine(void);

#ifdef __cplusplus
}

/* The calls of Listing 1, under the names that it has for them. */
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
