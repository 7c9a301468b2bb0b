# What programs that use VELOC's package ask for: veloc::client.
include(CMakeFindDependencyMacro)
find_dependency(tierflow PATHS "${CMAKE_CURRENT_LIST_DIR}/../tierflow" NO_DEFAULT_PATH)

if(NOT TARGET veloc::client)
  if(NOT TARGET tierflow::mpi)
    message(FATAL_ERROR "veloc::client needs MPI: enable the language C")
  endif()
  add_library(veloc::client INTERFACE IMPORTED)
  # VELOC's own examples include "include/veloc.h".
  set_target_properties(veloc::client PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${tierflow_PREFIX}"
    INTERFACE_LINK_LIBRARIES tierflow::mpi)
endif()
