/*
 * Trajectories of PETSc's time steppers in a checkpoint cache: TSAdjointSolve() and TSTrajectoryGetVecs() over more steps than memory
 * holds. tierflow_petsc.c is compiled by the application's own mpicc, with tierflow_mpi.c.
 */
#ifndef TIERFLOW_PETSC_H
#define TIERFLOW_PETSC_H

#include <petscts.h>

/* The type for TSTrajectorySetType() and -ts_trajectory_type. */
#define TSTRAJECTORYTIERFLOW "tierflow"

/*
 * Makes the type known. Call it after PetscInitialize(), before TSSetFromOptions(). Programs that cannot be changed load it as a library
 * instead: -dll_append libtierflow_petsc.so
 */
PETSC_EXTERN PetscErrorCode TierflowTSTrajectoryRegister(void);

#endif
