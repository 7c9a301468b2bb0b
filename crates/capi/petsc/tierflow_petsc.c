/*
 * A TSTrajectory over libtierflow. Each step of a forward pass is a version of an engine: a head, the solution, and the stages that the
 * adjoint of the step needs. The versions are hinted in reverse, so the engine brings each back before the adjoint asks for it.
 *
 * Options: -ts_trajectory_tierflow_KEY VALUE for each option of tf_options_set() in tierflow.h. Vectors in GPU memory pass by host
 * memory.
 */
#include "tierflow_petsc.h"

#include "tierflow.h"
#include "tierflow_mpi.h"

#include <petsc/private/tsimpl.h>

/* The options of tf_options_set() that are taken. Rank, ranks and run are those of the communicator. */
static const char *const Keys[] = {
    "device", "device_cache", "device_growth", "evict_while_growing", "peers", "overflow", "machine", "host_cache",
    "host_growth", "host_lead",
    "host_pool", "host_pool_slab", "host_pool_directory", "scratch", "storage_limit", "scratch_checksums", "direct_io",
    "node_local", "node_local_limit", "external", "agent", "agent_program", "keep_newest", "keep_every",
    "keep_younger_than", "after_restore", "flush", "durable_in_order", "policy", "dedup", "dedup_reads", "compress",
    "timeline", "statistics", "group_patience", "redundancy", "refuse_losses", "failure_domain", "exchange", "closing_patience",
};

/* Without an option that says where versions go, they stay in so much host memory. */
#define HOST_CACHE "1GiB"

/* Host memory is touched so far ahead of its use: the steps run beside that, and memory that no step needs is not touched. */
#define HOST_LEAD "16MiB"

/* No version: of a step that was not set. */
#define NONE UINT64_MAX

/* The first bytes of each version. */
typedef struct {
    PetscReal time;
    PetscReal time_before;
    int64_t   vectors;
} Head;

typedef struct {
    tf_options  options;
    PetscBool   has_place; /* some option says where versions go */
    PetscBool   outlives;  /* some option names a directory in which versions outlive the process */
    PetscBool   has_after; /* the option after_restore was given */
    tf_engine   engine;
    PetscBool   is_open;
    uint64_t   *versions; /* by step; NONE for steps that are not there */
    PetscInt    room, steps;
    uint64_t    next, reserved; /* the numbers from `next` to before `reserved` are this trajectory's */
    PetscInt    hinted;         /* steps whose versions are hinted in reverse; 0 if none are */
    PetscBool   is_turned;      /* a step was read since the last one was written */
    tf_region  *regions; /* of the head, and of the vectors of the step at hand */
    Vec        *vectors;
    PetscInt    regions_room;
} Trajectory;

static PetscErrorCode ErrorCodeOf(int status)
{
    switch (status) {
    case TF_ARGUMENT: return PETSC_ERR_ARG_WRONG;
    case TF_UNKNOWN: return PETSC_ERR_ARG_OUTOFRANGE;
    case TF_NO_ROOM: return PETSC_ERR_MEM;
    case TF_DAMAGED: return PETSC_ERR_FILE_UNEXPECTED;
    case TF_STORAGE: return PETSC_ERR_FILE_WRITE;
    default: return PETSC_ERR_LIB;
    }
}

#define TierflowCall(...) \
    do { \
        int status_ = (__VA_ARGS__); \
        PetscCheck(!status_, PETSC_COMM_SELF, ErrorCodeOf(status_), "Tierflow: %s", tf_error_message()); \
    } while (0)

/* Gives up the steps from this one on. */
static PetscErrorCode Forget(Trajectory *own, PetscInt from)
{
    PetscFunctionBegin;
    for (PetscInt step = from; step < own->steps; step++) {
        int status = own->versions[step] == NONE ? TF_OK : tf_discard(own->engine, own->versions[step]);
        /* One that was read may be gone already. */
        if (status != TF_UNKNOWN) TierflowCall(status);
        own->versions[step] = NONE;
    }
    own->steps = PetscMin(own->steps, from);
    if (own->hinted) TierflowCall(tf_forget_hints(own->engine));
    own->hinted = 0;
    PetscFunctionReturn(0);
}

/* Hints that `count` steps will be read, the last one first; if there are no versions of them yet, they will have the next numbers. */
static PetscErrorCode Hint(Trajectory *own, const uint64_t *versions, PetscInt count)
{
    uint64_t *reversed;
    size_t    length = 0;

    PetscFunctionBegin;
    PetscCall(PetscMalloc1(count, &reversed));
    for (PetscInt step = count - 1; step >= 0; step--) {
        reversed[length] = versions ? versions[step] : own->next + (uint64_t)step;
        length += reversed[length] != NONE;
    }
    int status = tf_hint(own->engine, reversed, length);
    PetscCall(PetscFree(reversed));
    TierflowCall(status);
    own->hinted = count;
    PetscFunctionReturn(0);
}

/* Returns how many steps a pass has from here on, the first state included; 0 if that is not known. */
static PetscErrorCode Foreseen(TS ts, PetscInt *steps)
{
    TSAdapt   adapt;
    PetscBool is_constant;
    PetscReal count;

    PetscFunctionBegin;
    *steps = 0;
    PetscCall(TSGetAdapt(ts, &adapt));
    PetscCall(PetscObjectTypeCompare((PetscObject)adapt, TSADAPTNONE, &is_constant));
    if (!is_constant || ts->time_step <= 0 || ts->event) PetscFunctionReturn(0);
    count = PetscCeilReal((ts->max_time - ts->ptime) / ts->time_step - 10 * PETSC_SQRT_MACHINE_EPSILON);
    count = PetscMin(count, (PetscReal)ts->max_steps);
    /* A list of hints has 8 bytes for each. */
    if (count >= 1 && count <= 1 << 22) *steps = (PetscInt)count + 1;
    PetscFunctionReturn(0);
}

/* Takes numbers for a pass that begins, and hints it as far as it is foreseen. */
static PetscErrorCode Begin(Trajectory *own, TS ts)
{
    PetscInt foreseen;

    PetscFunctionBegin;
    PetscCall(Foreseen(ts, &foreseen));
    if (!foreseen) PetscFunctionReturn(0);
    TierflowCall(tf_reserve(own->engine, (uint64_t)foreseen, &own->next));
    own->reserved = own->next + (uint64_t)foreseen;
    if (ts->trajectory->adjoint_solve_mode) PetscCall(Hint(own, NULL, foreseen));
    PetscFunctionReturn(0);
}

/*
 * Lists the regions of a step: the head, and the vectors without their addresses: the solution and, where its adjoint needs them, the
 * stages. No adjoint needs the solution beside them: as PETSc's own trajectory in memory does, one for adjoints leaves it out.
 */
static PetscErrorCode RegionsOf(TSTrajectory tj, TS ts, PetscInt step, Vec solution, Head *head, PetscInt *count)
{
    Trajectory *own = (Trajectory *)tj->data;
    Vec        *stages = NULL;
    PetscInt    several = 0;

    PetscFunctionBegin;
    PetscCheck(!ts->forward_solve, PetscObjectComm((PetscObject)tj), PETSC_ERR_SUP,
               "Tierflow does not hold forward sensitivities: use -ts_trajectory_type basic");
    if (step && !tj->solution_only) PetscCall(TSGetStages(ts, &several, &stages));
    /* The last stage of a stiffly accurate method is the solution itself. */
    if (several && ts->stifflyaccurate) several--;
    if (own->regions_room < several + 2) {
        PetscCall(PetscFree2(own->regions, own->vectors));
        own->regions_room = several + 2;
        PetscCall(PetscMalloc2(own->regions_room, &own->regions, own->regions_room, &own->vectors));
    }
    *count = 0;
    if (!several || ts->stifflyaccurate || !tj->adjoint_solve_mode) own->vectors[(*count)++] = solution;
    for (PetscInt i = 0; i < several; i++) own->vectors[(*count)++] = stages[i];
    own->regions[0] = (tf_region){head, sizeof *head, TF_PLACE_HOST};
    for (PetscInt i = 0; i < *count; i++) {
        PetscInt length;
        PetscCall(VecGetLocalSize(own->vectors[i], &length));
        own->regions[i + 1] = (tf_region){NULL, (uint64_t)length * sizeof(PetscScalar), TF_PLACE_HOST};
    }
    PetscFunctionReturn(0);
}

static PetscErrorCode TSTrajectorySet_Tierflow(TSTrajectory tj, TS ts, PetscInt step, PetscReal time, Vec solution)
{
    Trajectory *own = (Trajectory *)tj->data;
    Head        head;
    PetscInt    count;
    int         status;

    PetscFunctionBegin;
    /* A step that is set again, or a pass that begins again, replaces those from there on. */
    if (step < own->steps) PetscCall(Forget(own, step));
    if (step == 0) PetscCall(Begin(own, ts));
    own->is_turned = PETSC_FALSE;
    PetscCall(PetscMemzero(&head, sizeof head));
    head.time = head.time_before = time;
    if (step) PetscCall(TSGetPrevTime(ts, &head.time_before));
    PetscCall(RegionsOf(tj, ts, step, solution, &head, &count));
    head.vectors = count;
    for (PetscInt i = 0; i < count; i++) {
        const PetscScalar *values;
        PetscCall(VecGetArrayRead(own->vectors[i], &values));
        own->regions[i + 1].address = (void *)values;
    }
    if (own->next == own->reserved) {
        TierflowCall(tf_reserve(own->engine, 1 << 10, &own->next));
        own->reserved = own->next + (1 << 10);
    }
    status = tf_checkpoint(own->engine, own->next, own->regions, (size_t)count + 1, NULL);
    for (PetscInt i = 0; i < count; i++) {
        const PetscScalar *values = (const PetscScalar *)own->regions[i + 1].address;
        PetscCall(VecRestoreArrayRead(own->vectors[i], &values));
    }
    TierflowCall(status);
    if (step >= own->room) {
        PetscInt room = PetscMax(2 * own->room, step + 64);
        PetscCall(PetscRealloc((size_t)room * sizeof *own->versions, &own->versions));
        own->room = room;
    }
    while (own->steps < step) own->versions[own->steps++] = NONE;
    own->versions[step] = own->next++;
    own->steps          = step + 1;
    PetscFunctionReturn(0);
}

/* Tells the order in which the steps up to this one will be read, unless that was foreseen. */
static PetscErrorCode Turn(TSTrajectory tj, Trajectory *own, PetscInt step)
{
    PetscFunctionBegin;
    own->is_turned = PETSC_TRUE;
    if (!tj->adjoint_solve_mode || own->hinted == step + 1) PetscFunctionReturn(0);
    if (own->hinted) TierflowCall(tf_forget_hints(own->engine));
    PetscCall(Hint(own, own->versions, step + 1));
    PetscFunctionReturn(0);
}

static PetscErrorCode TSTrajectoryGet_Tierflow(TSTrajectory tj, TS ts, PetscInt step, PetscReal *time)
{
    Trajectory *own = (Trajectory *)tj->data;
    MPI_Comm    comm;
    Vec         solution;
    Head        head;
    PetscInt    count;
    int         status;

    PetscFunctionBegin;
    PetscCall(PetscObjectGetComm((PetscObject)tj, &comm));
    PetscCheck(step < own->steps && own->versions[step] != NONE, comm, PETSC_ERR_ARG_OUTOFRANGE,
               "Step %" PetscInt_FMT " is not in the trajectory, which has %" PetscInt_FMT " steps", step, own->steps);
    PetscCheck(!tj->solution_only || !ts->adjointsetupcalled, comm, PETSC_ERR_SUP,
               "The adjoint needs the stages: turn -ts_trajectory_solution_only off");
    PetscCheck(tj->solution_only || !tj->adjoint_solve_mode || ts->adjointsetupcalled, comm, PETSC_ERR_SUP,
               "The trajectory has the stages of steps, for an adjoint: turn -ts_trajectory_adjointmode off for the solutions");
    if (!own->is_turned) PetscCall(Turn(tj, own, step));
    PetscCall(TSGetSolution(ts, &solution));
    PetscCall(RegionsOf(tj, ts, step, solution, &head, &count));
    for (PetscInt i = 0; i < count; i++) {
        PetscScalar *values;
        PetscCall(VecGetArrayWrite(own->vectors[i], &values));
        own->regions[i + 1].address = values;
    }
    status = tf_restore(own->engine, own->versions[step], own->regions, (size_t)count + 1, NULL);
    for (PetscInt i = 0; i < count; i++) {
        PetscScalar *values = (PetscScalar *)own->regions[i + 1].address;
        PetscCall(VecRestoreArrayWrite(own->vectors[i], &values));
    }
    TierflowCall(status);
    PetscCheck(head.vectors == count, comm, PETSC_ERR_PLIB,
               "Step %" PetscInt_FMT " has %" PetscInt_FMT " vectors, and %" PetscInt_FMT " are asked for", step,
               (PetscInt)head.vectors, count);
    *time = head.time;
    if (step && !tj->solution_only && tj->adjoint_solve_mode) PetscCall(TSSetTimeStep(ts, head.time_before - head.time));
    PetscFunctionReturn(0);
}

static PetscErrorCode TSTrajectorySetFromOptions_Tierflow(TSTrajectory tj, PetscOptionItems *PetscOptionsObject)
{
    Trajectory *own = (Trajectory *)tj->data;

    PetscFunctionBegin;
    PetscOptionsHeadBegin(PetscOptionsObject, "TS trajectory options for Tierflow, as tf_options_set() takes them");
    for (size_t i = 0; i < sizeof Keys / sizeof *Keys; i++) {
        char      name[64], value[PETSC_MAX_PATH_LEN];
        PetscBool is_set, is_place, outlives;

        PetscCall(PetscSNPrintf(name, sizeof name, "-ts_trajectory_tierflow_%s", Keys[i]));
        PetscCall(PetscOptionsString(name, Keys[i], "tierflow.h", NULL, value, sizeof value, &is_set));
        if (!is_set) continue;
        TierflowCall(tf_options_set(own->options, Keys[i], value));
        PetscCall(PetscStrInList(Keys[i], "device_cache,host_cache,host_pool,peers,scratch,node_local,external", ',', &is_place));
        PetscCall(PetscStrInList(Keys[i], "node_local,external", ',', &outlives));
        own->has_place = (PetscBool)(own->has_place || is_place);
        own->outlives  = (PetscBool)(own->outlives || outlives);
        if (!strcmp(Keys[i], "after_restore")) own->has_after = PETSC_TRUE;
    }
    PetscOptionsHeadEnd();
    PetscFunctionReturn(0);
}

static PetscErrorCode TSTrajectorySetUp_Tierflow(TSTrajectory tj, TS ts)
{
    Trajectory *own = (Trajectory *)tj->data;
    MPI_Comm    comm;
    PetscMPIInt ranks;
    tf_group    group;

    PetscFunctionBegin;
    (void)ts;
    if (own->is_open) PetscFunctionReturn(0);
    if (!own->has_place) TierflowCall(tf_options_set(own->options, "host_cache", HOST_CACHE));
    /* An adjoint reads each step once. */
    if (!own->has_after) TierflowCall(tf_options_set(own->options, "after_restore", tj->adjoint_solve_mode ? "discard" : "keep"));
    PetscCall(PetscObjectGetComm((PetscObject)tj, &comm));
    PetscCallMPI(MPI_Comm_size(comm, &ranks));
    /* Ranks whose versions end with them need not agree. */
    if (ranks == 1) own->outlives = PETSC_FALSE;
    if (own->outlives) TierflowCall(tf_mpi_group(comm, &group));
    TierflowCall(tf_open(own->options, own->outlives ? &group : NULL, &own->engine));
    own->is_open = PETSC_TRUE;
    PetscFunctionReturn(0);
}

static PetscErrorCode TSTrajectoryReset_Tierflow(TSTrajectory tj)
{
    Trajectory *own = (Trajectory *)tj->data;

    PetscFunctionBegin;
    if (!own->is_open) PetscFunctionReturn(0);
    if (!tj->keepfiles) PetscCall(Forget(own, 0));
    /* What is kept is waited for. */
    TierflowCall(tj->keepfiles ? tf_close(own->engine) : tf_end(own->engine));
    own->is_open = PETSC_FALSE;
    own->steps = own->hinted = 0;
    own->next = own->reserved = 0;
    PetscFunctionReturn(0);
}

static PetscErrorCode TSTrajectoryDestroy_Tierflow(TSTrajectory tj)
{
    Trajectory *own = (Trajectory *)tj->data;

    PetscFunctionBegin;
    TierflowCall(tf_options_free(own->options));
    PetscCall(PetscFree(own->versions));
    PetscCall(PetscFree2(own->regions, own->vectors));
    PetscCall(PetscFree(own));
    PetscFunctionReturn(0);
}

static PetscErrorCode TSTrajectoryView_Tierflow(TSTrajectory tj, PetscViewer viewer)
{
    Trajectory *own = (Trajectory *)tj->data;
    PetscBool   is_text;
    size_t      length;
    char       *text;

    PetscFunctionBegin;
    PetscCall(PetscObjectTypeCompare((PetscObject)viewer, PETSCVIEWERASCII, &is_text));
    if (!is_text || !own->is_open) PetscFunctionReturn(0);
    TierflowCall(tf_report(own->engine, NULL, 0, &length));
    PetscCall(PetscMalloc1(length + 1, &text));
    TierflowCall(tf_report(own->engine, text, length + 1, NULL));
    PetscCall(PetscViewerASCIIPushSynchronized(viewer));
    PetscCall(PetscViewerASCIISynchronizedPrintf(viewer, "%" PetscInt_FMT " steps\n%s\n", own->steps, text));
    PetscCall(PetscViewerFlush(viewer));
    PetscCall(PetscViewerASCIIPopSynchronized(viewer));
    PetscCall(PetscFree(text));
    PetscFunctionReturn(0);
}

static PetscErrorCode TSTrajectoryCreate_Tierflow(TSTrajectory tj, TS ts)
{
    Trajectory *own;

    PetscFunctionBegin;
    (void)ts;
    PetscCall(PetscNew(&own));
    tj->data = own;
    TierflowCall(tf_options_new(&own->options));
    TierflowCall(tf_options_set(own->options, "device", "host"));
    TierflowCall(tf_options_set(own->options, "host_lead", HOST_LEAD));
    tj->ops->set            = TSTrajectorySet_Tierflow;
    tj->ops->get            = TSTrajectoryGet_Tierflow;
    tj->ops->setfromoptions = TSTrajectorySetFromOptions_Tierflow;
    tj->ops->setup          = TSTrajectorySetUp_Tierflow;
    tj->ops->reset          = TSTrajectoryReset_Tierflow;
    tj->ops->destroy        = TSTrajectoryDestroy_Tierflow;
    tj->ops->view           = TSTrajectoryView_Tierflow;
    PetscFunctionReturn(0);
}

PetscErrorCode TierflowTSTrajectoryRegister(void)
{
    PetscFunctionBegin;
    PetscCall(TSInitializePackage());
    PetscCall(TSTrajectoryRegister(TSTRAJECTORYTIERFLOW, TSTrajectoryCreate_Tierflow));
    PetscFunctionReturn(0);
}

/* PETSc calls it when it loads libtierflow_petsc. */
PETSC_EXTERN PetscErrorCode PetscDLLibraryRegister_tierflow_petsc(void)
{
    PetscFunctionBegin;
    PetscCall(TierflowTSTrajectoryRegister());
    PetscFunctionReturn(0);
}
