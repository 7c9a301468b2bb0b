# Targets: tierflow::tierflow, the library; tierflow::static, the same as an archive; tierflow::mpi, the library with groups of
# MPI's ranks and VELOC_Init, which is compiled with what links to it. The last one is there where MPI is found for C.
get_filename_component(tierflow_PREFIX "${CMAKE_CURRENT_LIST_DIR}/../../@UP@" ABSOLUTE)
include(CMakeFindDependencyMacro)

if(NOT TARGET tierflow::tierflow)
  add_library(tierflow::tierflow SHARED IMPORTED)
  set_target_properties(tierflow::tierflow PROPERTIES
    IMPORTED_LOCATION "${tierflow_PREFIX}/@LIBDIR@/libtierflow.so"
    IMPORTED_SONAME "libtierflow.so.@RELEASE@"
    INTERFACE_INCLUDE_DIRECTORIES "${tierflow_PREFIX}/include")

  add_library(tierflow::static STATIC IMPORTED)
  set_target_properties(tierflow::static PROPERTIES
    IMPORTED_LOCATION "${tierflow_PREFIX}/@LIBDIR@/libtierflow.a"
    INTERFACE_INCLUDE_DIRECTORIES "${tierflow_PREFIX}/include"
    INTERFACE_LINK_LIBRARIES "gcc_s;util;rt;pthread;m;dl")

  if(NOT TARGET MPI::MPI_C)
    find_package(MPI QUIET COMPONENTS C)
  endif()
  if(TARGET MPI::MPI_C)
    add_library(tierflow::mpi INTERFACE IMPORTED)
    set_target_properties(tierflow::mpi PROPERTIES
      INTERFACE_SOURCES "${tierflow_PREFIX}/share/tierflow/tierflow_mpi.c"
      INTERFACE_LINK_LIBRARIES "tierflow::tierflow;MPI::MPI_C")
  endif()
endif()

set(tierflow_FORTRAN_SOURCES
  "${tierflow_PREFIX}/share/tierflow/fortran/veloc.f90"
  "${tierflow_PREFIX}/share/tierflow/fortran/tierflow.f90"
  "${tierflow_PREFIX}/share/tierflow/fortran/tierflow_fortran.c")
