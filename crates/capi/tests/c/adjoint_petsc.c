/*
 * The adjoint of a reaction and diffusion equation in one dimension by PETSc, with the trajectory that the options name. Prints the
 * gradient in base 16, so that each bit of it can be compared.
 *
 * -linear: diffusion without reaction, whose steps are the cheapest for the bytes that they store; -cells N: cells; -passes P: forward
 * and backward passes; -adjoints A: backward passes after each forward pass; -without: the library that -dll_append names registers the
 * trajectory's type, and not this program; -event T: an event at this time, before which steps are rolled back;
 * -again S: step S is rolled back by the application, and taken in halves; -kill S: the process kills itself at step S; -between C: a
 * command between the forward and the backward pass.
 */
#include "tierflow_petsc.h"

#include <petscdmda.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>

typedef struct {
    DM        grid;
    PetscReal diffusion, reaction, event;
    PetscInt  again, kill;
} Problem;

/* u' = d u_xx + r (u - u^3) */
static PetscErrorCode Slope(TS ts, PetscReal time, Vec state, Vec slope, void *context)
{
    Problem           *problem = (Problem *)context;
    Vec                local;
    const PetscScalar *u;
    PetscScalar       *f;
    PetscInt           first, count, cells;

    PetscFunctionBegin;
    (void)ts;
    (void)time;
    PetscCall(DMDAGetInfo(problem->grid, NULL, &cells, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL));
    PetscCall(DMDAGetCorners(problem->grid, &first, NULL, NULL, &count, NULL, NULL));
    PetscCall(DMGetLocalVector(problem->grid, &local));
    PetscCall(DMGlobalToLocal(problem->grid, state, INSERT_VALUES, local));
    PetscCall(DMDAVecGetArrayRead(problem->grid, local, (void *)&u));
    PetscCall(DMDAVecGetArrayWrite(problem->grid, slope, &f));
    for (PetscInt i = first; i < first + count; i++) {
        PetscScalar left = i ? u[i - 1] : u[i], right = i + 1 < cells ? u[i + 1] : u[i];
        f[i] = problem->diffusion * (left - 2 * u[i] + right) + problem->reaction * (u[i] - u[i] * u[i] * u[i]);
    }
    PetscCall(DMDAVecRestoreArrayWrite(problem->grid, slope, &f));
    PetscCall(DMDAVecRestoreArrayRead(problem->grid, local, (void *)&u));
    PetscCall(DMRestoreLocalVector(problem->grid, &local));
    PetscFunctionReturn(0);
}

static PetscErrorCode Jacobian(TS ts, PetscReal time, Vec state, Mat matrix, Mat other, void *context)
{
    Problem           *problem = (Problem *)context;
    const PetscScalar *u;
    PetscInt           first, last, cells;

    PetscFunctionBegin;
    (void)ts;
    (void)time;
    PetscCall(VecGetSize(state, &cells));
    PetscCall(VecGetOwnershipRange(state, &first, &last));
    PetscCall(VecGetArrayRead(state, &u));
    for (PetscInt i = first; i < last; i++) {
        PetscInt    columns[3] = {i - 1, i, i + 1};
        PetscScalar d = problem->diffusion, here = u[i - first];
        PetscScalar values[3] = {d, -2 * d + problem->reaction * (1 - 3 * here * here), d};
        if (i == 0) values[1] += d;
        if (i == cells - 1) values[1] += d;
        columns[0] = i ? i - 1 : -1;
        columns[2] = i + 1 < cells ? i + 1 : -1;
        PetscCall(MatSetValues(other, 1, &i, 3, columns, values, INSERT_VALUES));
    }
    PetscCall(VecRestoreArrayRead(state, &u));
    PetscCall(MatAssemblyBegin(other, MAT_FINAL_ASSEMBLY));
    PetscCall(MatAssemblyEnd(other, MAT_FINAL_ASSEMBLY));
    if (matrix != other) {
        PetscCall(MatAssemblyBegin(matrix, MAT_FINAL_ASSEMBLY));
        PetscCall(MatAssemblyEnd(matrix, MAT_FINAL_ASSEMBLY));
    }
    PetscFunctionReturn(0);
}

static PetscErrorCode Until(TS ts, PetscReal time, Vec state, PetscScalar values[], void *context)
{
    PetscFunctionBegin;
    (void)ts;
    (void)state;
    values[0] = time - ((Problem *)context)->event;
    PetscFunctionReturn(0);
}

static PetscErrorCode AfterStep(TS ts)
{
    Problem  *problem;
    PetscReal length;
    PetscInt  step;

    PetscFunctionBegin;
    PetscCall(TSGetApplicationContext(ts, &problem));
    PetscCall(TSGetStepNumber(ts, &step));
    if (step == problem->kill) raise(SIGKILL);
    if (step != problem->again) PetscFunctionReturn(0);
    problem->again = -1;
    PetscCall(TSGetTimeStep(ts, &length));
    PetscCall(TSRollBack(ts));
    PetscCall(TSSetTimeStep(ts, length / 2));
    PetscFunctionReturn(0);
}

static PetscErrorCode Print(Vec gradient)
{
    Vec                whole;
    VecScatter         scatter;
    const PetscScalar *values;
    PetscInt           count;
    PetscMPIInt        rank;

    PetscFunctionBegin;
    PetscCallMPI(MPI_Comm_rank(PETSC_COMM_WORLD, &rank));
    PetscCall(VecScatterCreateToZero(gradient, &scatter, &whole));
    PetscCall(VecScatterBegin(scatter, gradient, whole, INSERT_VALUES, SCATTER_FORWARD));
    PetscCall(VecScatterEnd(scatter, gradient, whole, INSERT_VALUES, SCATTER_FORWARD));
    PetscCall(VecGetLocalSize(whole, &count));
    PetscCall(VecGetArrayRead(whole, &values));
    if (rank == 0) {
        printf("gradient");
        for (PetscInt i = 0; i < count; i += count / 16 ? count / 16 : 1) printf(" %a", (double)values[i]);
        printf("\n");
    }
    PetscCall(VecRestoreArrayRead(whole, &values));
    PetscCall(VecScatterDestroy(&scatter));
    PetscCall(VecDestroy(&whole));
    PetscFunctionReturn(0);
}

int main(int argc, char **argv)
{
    Problem        problem = {NULL, 0.2, 1, 0, -1, -1};
    TS             ts;
    Vec            state, gradient;
    Mat            matrix;
    PetscInt       cells = 500, passes = 1, adjoints = 1, first, last;
    PetscBool      is_without = PETSC_FALSE, is_linear = PETSC_FALSE, has_event, has_between;
    char           between[PETSC_MAX_PATH_LEN];
    struct rusage  used;
    PetscLogDouble begun, forward = 0, backward = 0, ended;

    PetscCall(PetscInitialize(&argc, &argv, NULL, NULL));
    PetscCall(PetscOptionsGetBool(NULL, NULL, "-without", &is_without, NULL));
    if (!is_without) PetscCall(TierflowTSTrajectoryRegister());
    PetscCall(PetscOptionsGetBool(NULL, NULL, "-linear", &is_linear, NULL));
    if (is_linear) problem.reaction = 0;
    PetscCall(PetscOptionsGetInt(NULL, NULL, "-cells", &cells, NULL));
    PetscCall(PetscOptionsGetInt(NULL, NULL, "-passes", &passes, NULL));
    PetscCall(PetscOptionsGetInt(NULL, NULL, "-adjoints", &adjoints, NULL));
    PetscCall(PetscOptionsGetInt(NULL, NULL, "-again", &problem.again, NULL));
    PetscCall(PetscOptionsGetInt(NULL, NULL, "-kill", &problem.kill, NULL));
    PetscCall(PetscOptionsGetReal(NULL, NULL, "-event", &problem.event, &has_event));
    PetscCall(PetscOptionsGetString(NULL, NULL, "-between", between, sizeof between, &has_between));
    PetscCall(DMDACreate1d(PETSC_COMM_WORLD, DM_BOUNDARY_NONE, cells, 1, 1, NULL, &problem.grid));
    PetscCall(DMSetUp(problem.grid));
    PetscCall(DMCreateGlobalVector(problem.grid, &state));
    PetscCall(VecDuplicate(state, &gradient));
    PetscCall(DMCreateMatrix(problem.grid, &matrix));
    PetscCall(TSCreate(PETSC_COMM_WORLD, &ts));
    PetscCall(TSSetProblemType(ts, TS_NONLINEAR));
    PetscCall(TSSetType(ts, TSRK));
    PetscCall(TSSetRHSFunction(ts, NULL, Slope, &problem));
    PetscCall(Jacobian(ts, 0, state, matrix, matrix, &problem));
    PetscCall(TSSetRHSJacobian(ts, matrix, matrix, is_linear ? TSComputeRHSJacobianConstant : Jacobian, &problem));
    PetscCall(TSSetTimeStep(ts, 0.05));
    PetscCall(TSSetMaxTime(ts, 4));
    PetscCall(TSSetExactFinalTime(ts, TS_EXACTFINALTIME_MATCHSTEP));
    PetscCall(TSSetApplicationContext(ts, &problem));
    PetscCall(TSSetPostStep(ts, AfterStep));
    if (has_event) {
        PetscInt  rising = 1;
        PetscBool ends = PETSC_FALSE;
        PetscCall(TSSetEventHandler(ts, 1, &rising, &ends, Until, NULL, &problem));
    }
    PetscCall(TSSetSaveTrajectory(ts));
    PetscCall(TSSetCostGradients(ts, 1, &gradient, NULL));
    PetscCall(TSSetFromOptions(ts));
    for (PetscInt pass = 0; pass < passes; pass++) {
        PetscScalar *u;
        PetscReal    step = 0.05;
        PetscInt     steps;

        PetscCall(PetscOptionsGetReal(NULL, NULL, "-ts_dt", &step, NULL));
        PetscCall(TSSetTime(ts, 0));
        PetscCall(TSSetStepNumber(ts, 0));
        PetscCall(TSSetTimeStep(ts, step));
        PetscCall(VecGetOwnershipRange(state, &first, &last));
        PetscCall(VecGetArrayWrite(state, &u));
        for (PetscInt i = first; i < last; i++) u[i - first] = PetscSinReal(0.01 * (i + 1) * (pass + 1));
        PetscCall(VecRestoreArrayWrite(state, &u));
        PetscCall(PetscTime(&begun));
        PetscCall(TSSolve(ts, state));
        PetscCall(PetscTime(&ended));
        forward += ended - begun;
        PetscCall(TSGetStepNumber(ts, &steps));
        PetscCheck(!has_between || !system(between), PETSC_COMM_SELF, PETSC_ERR_SYS, "%s failed", between);
        for (PetscInt adjoint = 0; adjoint < adjoints; adjoint++) {
            PetscCall(VecSet(gradient, 1));
            PetscCall(TSSetStepNumber(ts, steps));
            PetscCall(PetscTime(&begun));
            PetscCall(TSAdjointSolve(ts));
            PetscCall(PetscTime(&ended));
            backward += ended - begun;
            PetscCall(Print(gradient));
        }
    }
    getrusage(RUSAGE_SELF, &used);
    PetscCall(PetscPrintf(PETSC_COMM_WORLD, "seconds %g %g %g\n", forward, backward,
                          (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
                              1e-6 * (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec)));
    PetscCall(TSDestroy(&ts));
    PetscCall(VecDestroy(&state));
    PetscCall(VecDestroy(&gradient));
    PetscCall(MatDestroy(&matrix));
    PetscCall(DMDestroy(&problem.grid));
    PetscCall(PetscFinalize());
    return 0;
}
