/* Groups of the ranks of an MPI communicator. The application compiles tierflow_mpi.c with its mpicc. */
#ifndef TIERFLOW_MPI_H
#define TIERFLOW_MPI_H

#include "tierflow.h"

#include <mpi.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Makes a group of a communicator, for tf_open(), which takes the group over and releases it. Collective. The ranks meet on a duplicate
 * of the communicator, so that messages of the application do not come between. Close the engine before MPI_Finalize: later calls that
 * meet other ranks fail with TF_GROUP. Redundancy is made in the background if MPI was initialised with MPI_THREAD_MULTIPLE, else in calls
 * that are collective: see tf_group.
 */
int tf_mpi_group(MPI_Comm comm, tf_group *group);

#ifdef __cplusplus
}
#endif

#endif
