/* What Fortran's modules ask of C: arrays by their descriptors, and communicators by their numbers. */
#include "tierflow_mpi.h"
#include "veloc.h"

#include <ISO_Fortran_binding.h>

/* The bytes of an array of any kind and rank; 0 if it has gaps, or is not there. */
static int region_of(const CFI_cdesc_t *array, tf_region *region)
{
    size_t bytes = array->elem_len;
    int dimension;
    if (array->base_addr == NULL || (array->rank > 0 && !CFI_is_contiguous(array)))
        return 0;
    for (dimension = 0; dimension < array->rank; dimension++)
        bytes *= (size_t)array->dim[dimension].extent;
    region->address = array->base_addr;
    region->bytes = bytes;
    region->place = TF_PLACE_ANY;
    return 1;
}

int veloc_init_f(MPI_Fint comm, const char *cfg_file)
{
    return VELOC_Init(MPI_Comm_f2c(comm), cfg_file);
}

int veloc_mem_protect_f(int id, const CFI_cdesc_t *array)
{
    tf_region region;
    return region_of(array, &region) ? VELOC_Mem_protect(id, region.address, region.bytes, 1) : VELOC_FAILURE;
}

int tf_open_f(tf_options options, MPI_Fint comm, tf_engine *engine)
{
    tf_group group;
    int status = tf_mpi_group(MPI_Comm_f2c(comm), &group);
    return status == TF_OK ? tf_open(options, &group, engine) : status;
}

int tf_checkpoint_f(tf_engine engine, uint64_t version, const CFI_cdesc_t *array)
{
    tf_region region;
    return region_of(array, &region) ? tf_checkpoint(engine, version, &region, 1, NULL) : TF_ARGUMENT;
}

int tf_restore_f(tf_engine engine, uint64_t version, const CFI_cdesc_t *array)
{
    tf_region region;
    return region_of(array, &region) ? tf_restore(engine, version, &region, 1, NULL) : TF_ARGUMENT;
}
