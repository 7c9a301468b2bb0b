/* Groups of ranks that are those of an MPI communicator. tierflow_mpi.c is compiled by the application's own mpicc. */
#ifndef TIERFLOW_MPI_H
#define TIERFLOW_MPI_H

#include "tierflow.h"

#include <mpi.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Makes a group of a communicator, for tf_open(), which frees it. The ranks meet on a duplicate of it, so nothing that the
 * application sends gets in between. Collective. MPI must be there until the engine is closed: calls that
 * meet other ranks without it fail with TF_GROUP. Redundancy is made in the
 * background if MPI was initialised with MPI_THREAD_MULTIPLE, else in calls that are collective: see tf_group.
 */
int tf_mpi_group(MPI_Comm comm, tf_group *group);

#ifdef __cplusplus
}
#endif

#endif
