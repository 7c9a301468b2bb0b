/*
 * Trajectories of PETSc's time steppers in a checkpoint cache: TSAdjointSolve() and TSTrajectoryGetVecs() over more steps than memory
 * holds. The application compiles tierflow_petsc.c and tierflow_mpi.c with its mpicc.
 */
#ifndef TIERFLOW_PETSC_H
#define TIERFLOW_PETSC_H

#include <petscts.h>

/* The type for TSTrajectorySetType() and -ts_trajectory_type. */
#define TSTRAJECTORYTIERFLOW "tierflow"

/*
 * Registers the type with PETSc. Call it after PetscInitialize(), before TSSetFromOptions(). Programs that cannot be changed load the type
 * as a library instead: -dll_append libtierflow_petsc.so
 */
PETSC_EXTERN PetscErrorCode TierflowTSTrajectoryRegister(void);

#endif
