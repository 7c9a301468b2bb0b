/* What Fortran's modules ask of C: arrays by their descriptors, and communicators by their numbers. */
#include "tierflow_mpi.h"
#include "veloc.h"

#include <ISO_Fortran_binding.h>

#include <stdio.h>
#include <stdlib.h>

/* The bytes of an array of any kind and rank. If it has gaps, or is not there, says so, and returns 0. */
static int region_of(const CFI_cdesc_t *array, tf_region *region)
{
    size_t bytes = array->elem_len;
    int dimension;
    if (array->base_addr == NULL || (array->rank > 0 && !CFI_is_contiguous(array))) {
        fprintf(stderr, "tierflow: an array %s\n", array->base_addr == NULL ? "is not allocated" : "has gaps: pass a contiguous one");
        return 0;
    }
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

int veloc_region_protect_f(int id, const CFI_cdesc_t *array, const char *name)
{
    tf_region region;
    return region_of(array, &region) ? VELOC_Region_protect(id, region.address, region.bytes, 1, name) : VELOC_FAILURE;
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

/* An array and its name, as Fortran keeps them. */
typedef struct named_array {
    char name[1025];
    tf_region region;
} named_array;

int tf_region_f(const CFI_cdesc_t *array, tf_region *region)
{
    return region_of(array, region) ? TF_OK : TF_ARGUMENT;
}

/* The same as C has them, to be freed. Without memory, says so, and returns NULL. */
static tf_named *named_of(const named_array *arrays, size_t count)
{
    tf_named *named = malloc((count + 1) * sizeof *named);
    size_t at;
    if (named == NULL)
        fprintf(stderr, "tierflow: there is no memory for the names of arrays\n");
    for (at = 0; named != NULL && at < count; at++) {
        named[at].name = arrays[at].name;
        named[at].region = arrays[at].region;
    }
    return named;
}

int tf_checkpoint_named_f(tf_engine engine, uint64_t version, const named_array *arrays, size_t count)
{
    tf_named *named = named_of(arrays, count);
    int status = named == NULL ? TF_NO_ROOM : tf_checkpoint_named(engine, version, named, count, NULL);
    free(named);
    return status;
}

int tf_restore_named_f(tf_engine engine, uint64_t version, const named_array *arrays, size_t count)
{
    tf_named *named = named_of(arrays, count);
    int status = named == NULL ? TF_NO_ROOM : tf_restore_named(engine, version, named, count, NULL);
    free(named);
    return status;
}

int tf_restore_rank_f(tf_engine engine, uint64_t version, int32_t rank, const named_array *arrays, size_t count)
{
    tf_named *named = named_of(arrays, count);
    int status = named == NULL ? TF_NO_ROOM : tf_restore_rank(engine, version, (uint32_t)rank, named, count);
    free(named);
    return status;
}

int tf_restore_named_from_f(const char *directory, uint64_t version, int32_t rank, const named_array *arrays, size_t count)
{
    tf_named *named = named_of(arrays, count);
    int status = named == NULL ? TF_NO_ROOM : tf_restore_named_from(directory, version, (uint32_t)rank, named, count);
    free(named);
    return status;
}
