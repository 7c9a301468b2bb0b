# What programs that use VELOC's package ask for: veloc::client, and the targets that they link to by name beside it.
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

# VELOC's package brings these along; here they add nothing, unless they are installed.
find_package(OpenSSL QUIET)
foreach(name er axl)
  find_package(${name} QUIET)
endforeach()
foreach(name veloc::modules er::er axl::axl)
  if(NOT TARGET ${name})
    add_library(${name} INTERFACE IMPORTED)
  endif()
endforeach()
