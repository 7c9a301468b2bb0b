/* The constants of VELOC's client API. */
#ifndef TIERFLOW_VELOC_DEFS_H
#define TIERFLOW_VELOC_DEFS_H

#define VELOC_SUCCESS (0)
#define VELOC_FAILURE (-1)
/* VELOC_Restart_test returns this if an error hides which checkpoints there are. */
#define VELOC_UNKNOWN (-2)

/* Room for the path of a routed file. */
#define VELOC_MAX_NAME (1024)

#define VELOC_CKPT_ALL (0)
#define VELOC_CKPT_SOME (1)
#define VELOC_CKPT_REST (2)

#define VELOC_RECOVER_ALL (0)
#define VELOC_RECOVER_SOME (1)
#define VELOC_RECOVER_REST (2)

#define VELOC_OBSERVE_CKPT_END (0)

#endif
