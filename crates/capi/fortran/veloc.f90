! VELOC's client API for Fortran: the names and arguments of VELOC's own module.
!
! A program protects variables and arrays of every kind and rank by passing them. They need the target attribute, have no gaps, and stay
! where they are: without target, the compiler may keep them somewhere else than in memory.
module veloc
  use, intrinsic :: iso_c_binding
  implicit none
  private

  integer, parameter, public :: VELOC_SCES = 0
  integer, parameter, public :: VELOC_NSCS = -1
  integer, parameter, public :: VELOC_CKPT_ALL = 0, VELOC_CKPT_SOME = 1, VELOC_CKPT_REST = 2
  integer, parameter, public :: VELOC_RECOVER_ALL = 0, VELOC_RECOVER_SOME = 1, VELOC_RECOVER_REST = 2
  integer, parameter, public :: VELOC_MAX_NAME = 1024

  public :: VELOC_Init, VELOC_Init_single, VELOC_Finalize
  public :: VELOC_Mem_protect, VELOC_Mem_unprotect, VELOC_Mem_clear
  public :: VELOC_Checkpoint_begin, VELOC_Checkpoint_mem, VELOC_Checkpoint_selective, VELOC_Checkpoint_end
  public :: VELOC_Checkpoint_wait, VELOC_Checkpoint_finished, VELOC_Checkpoint, VELOC_Cleanup
  public :: VELOC_Restart_test, VELOC_Restart_begin, VELOC_Restart_end, VELOC_Restart
  public :: VELOC_Recover_mem, VELOC_Recover_selective, VELOC_Recover_size, VELOC_Route_file

  public :: VELOC_Region_protect, VELOC_Region_unprotect, VELOC_Region_clear
  public :: VELOC_Restart_test_rank, VELOC_Restart_begin_rank, VELOC_Restart_version, VELOC_Recover_bytes, VELOC_Recover_size_of
  public :: VELOC_Prefetch_enqueue, VELOC_Prefetch_start, VELOC_Observe, VELOC_Engine

  interface VELOC_Mem_protect
    module procedure protect_array, protect_address
  end interface

  interface
    integer(c_int) function init_c(comm, file) bind(c, name='veloc_init_f')
      import :: c_int, c_char
      integer(c_int), value :: comm
      character(kind=c_char), intent(in) :: file(*)
    end function
    integer(c_int) function init_single_c(id, file) bind(c, name='VELOC_Init_single')
      import :: c_int, c_char
      integer(c_int), value :: id
      character(kind=c_char), intent(in) :: file(*)
    end function
    integer(c_int) function finalize_c(drain) bind(c, name='VELOC_Finalize')
      import :: c_int
      integer(c_int), value :: drain
    end function
    integer(c_int) function protect_array_c(id, array) bind(c, name='veloc_mem_protect_f')
      import :: c_int
      integer(c_int), value :: id
      type(*), dimension(..), target :: array
    end function
    integer(c_int) function protect_address_c(id, address, count, base_size) bind(c, name='VELOC_Mem_protect')
      import :: c_int, c_ptr, c_size_t
      integer(c_int), value :: id
      type(c_ptr), value :: address
      integer(c_size_t), value :: count, base_size
    end function
    integer(c_int) function unprotect_c(id) bind(c, name='VELOC_Mem_unprotect')
      import :: c_int
      integer(c_int), value :: id
    end function
    integer(c_int) function clear_c() bind(c, name='VELOC_Mem_clear')
      import :: c_int
    end function
    integer(c_int) function begin_c(name, version) bind(c, name='VELOC_Checkpoint_begin')
      import :: c_int, c_char
      character(kind=c_char), intent(in) :: name(*)
      integer(c_int), value :: version
    end function
    integer(c_int) function mem_c() bind(c, name='VELOC_Checkpoint_mem')
      import :: c_int
    end function
    integer(c_int) function selective_c(mode, ids, count) bind(c, name='VELOC_Checkpoint_selective')
      import :: c_int
      integer(c_int), value :: mode, count
      integer(c_int), intent(in) :: ids(*)
    end function
    integer(c_int) function end_c(success) bind(c, name='VELOC_Checkpoint_end')
      import :: c_int
      integer(c_int), value :: success
    end function
    integer(c_int) function wait_c() bind(c, name='VELOC_Checkpoint_wait')
      import :: c_int
    end function
    integer(c_int) function finished_c() bind(c, name='VELOC_Checkpoint_finished')
      import :: c_int
    end function
    integer(c_int) function checkpoint_c(name, version) bind(c, name='VELOC_Checkpoint')
      import :: c_int, c_char
      character(kind=c_char), intent(in) :: name(*)
      integer(c_int), value :: version
    end function
    integer(c_int) function cleanup_c(name) bind(c, name='VELOC_Cleanup')
      import :: c_int, c_char
      character(kind=c_char), intent(in) :: name(*)
    end function
    integer(c_int) function restart_test_c(name, version) bind(c, name='VELOC_Restart_test')
      import :: c_int, c_char
      character(kind=c_char), intent(in) :: name(*)
      integer(c_int), value :: version
    end function
    integer(c_int) function restart_begin_c(name, version) bind(c, name='VELOC_Restart_begin')
      import :: c_int, c_char
      character(kind=c_char), intent(in) :: name(*)
      integer(c_int), value :: version
    end function
    integer(c_int) function recover_c() bind(c, name='VELOC_Recover_mem')
      import :: c_int
    end function
    integer(c_int) function recover_selective_c(mode, ids, count) bind(c, name='VELOC_Recover_selective')
      import :: c_int
      integer(c_int), value :: mode, count
      integer(c_int), intent(in) :: ids(*)
    end function
    integer(c_int) function recover_size_c(id) bind(c, name='VELOC_Recover_size')
      import :: c_int
      integer(c_int), value :: id
    end function
    integer(c_int) function restart_end_c(success) bind(c, name='VELOC_Restart_end')
      import :: c_int
      integer(c_int), value :: success
    end function
    integer(c_int) function restart_c(name, version) bind(c, name='VELOC_Restart')
      import :: c_int, c_char
      character(kind=c_char), intent(in) :: name(*)
      integer(c_int), value :: version
    end function
    integer(c_int) function route_c(original, routed) bind(c, name='VELOC_Route_file')
      import :: c_int, c_char
      character(kind=c_char), intent(in) :: original(*)
      character(kind=c_char), intent(out) :: routed(*)
    end function
    integer(c_int) function region_protect_array_c(id, array, name) bind(c, name='veloc_region_protect_f')
      import :: c_char, c_int
      integer(c_int), value :: id
      type(*), dimension(..), target :: array
      character(kind=c_char), intent(in) :: name(*)
    end function
    integer(c_int) function region_unprotect_c(id, name) bind(c, name='VELOC_Region_unprotect')
      import :: c_char, c_int
      integer(c_int), value :: id
      character(kind=c_char), intent(in) :: name(*)
    end function
    integer(c_int) function region_clear_c(name) bind(c, name='VELOC_Region_clear')
      import :: c_char, c_int
      character(kind=c_char), intent(in) :: name(*)
    end function
    integer(c_int) function restart_test_rank_c(name, version, rank) bind(c, name='VELOC_Restart_test_rank')
      import :: c_char, c_int
      character(kind=c_char), intent(in) :: name(*)
      integer(c_int), value :: version, rank
    end function
    integer(c_int) function restart_begin_rank_c(name, version, rank) bind(c, name='VELOC_Restart_begin_rank')
      import :: c_char, c_int
      character(kind=c_char), intent(in) :: name(*)
      integer(c_int), value :: version, rank
    end function
    integer(c_int) function restart_version_c(version) bind(c, name='VELOC_Restart_version')
      import :: c_int
      integer(c_int), value :: version
    end function
    integer(c_int64_t) function recover_bytes_c(id) bind(c, name='VELOC_Recover_bytes')
      import :: c_int, c_int64_t
      integer(c_int), value :: id
    end function
    integer(c_int64_t) function recover_size_of_c(version, id) bind(c, name='VELOC_Recover_size_of')
      import :: c_int, c_int64_t
      integer(c_int), value :: version, id
    end function
    integer(c_int) function enqueue_c(version) bind(c, name='VELOC_Prefetch_enqueue')
      import :: c_int
      integer(c_int), value :: version
    end function
    integer(c_int) function start_c() bind(c, name='VELOC_Prefetch_start')
      import :: c_int
    end function
    ! A procedure of C's binding, which gets `context`, the name and the version.
    integer(c_int) function observe_c(type, observer, context) bind(c, name='VELOC_Observe')
      import :: c_funptr, c_int, c_ptr
      integer(c_int), value :: type
      type(c_funptr), value :: observer
      type(c_ptr), value :: context
    end function
    ! Returns the client's engine, for functions of the module tierflow; 0 if there is no client.
    integer(c_int64_t) function VELOC_Engine() bind(c, name='VELOC_Engine')
      import :: c_int64_t
    end function
  end interface

contains

  ! Returns a text as C reads it: without the blanks at its end, and with a zero.
  pure function c_text(text)
    character(len=*), intent(in) :: text
    character(kind=c_char, len=len_trim(text) + 1) :: c_text
    c_text = trim(text) // c_null_char
  end function

  subroutine VELOC_Init(comm, config_file, err)
    integer, intent(in) :: comm
    character(len=*), intent(in) :: config_file
    integer, intent(out) :: err
    err = init_c(int(comm, c_int), c_text(config_file))
  end subroutine

  subroutine VELOC_Init_single(id, config_file, err)
    integer, intent(in) :: id
    character(len=*), intent(in) :: config_file
    integer, intent(out) :: err
    err = init_single_c(int(id, c_int), c_text(config_file))
  end subroutine

  subroutine VELOC_Finalize(drain, err)
    integer, intent(in) :: drain
    integer, intent(out) :: err
    err = finalize_c(int(drain, c_int))
  end subroutine

  subroutine protect_array(id, array, err)
    integer, intent(in) :: id
    type(*), dimension(..), target :: array
    integer, intent(out) :: err
    err = protect_array_c(int(id, c_int), array)
  end subroutine

  subroutine protect_address(id, address, count, base_size, err)
    integer, intent(in) :: id
    type(c_ptr), intent(in) :: address
    integer, intent(in) :: count, base_size
    integer, intent(out) :: err
    err = protect_address_c(int(id, c_int), address, int(count, c_size_t), int(base_size, c_size_t))
  end subroutine

  subroutine VELOC_Mem_unprotect(id, err)
    integer, intent(in) :: id
    integer, intent(out) :: err
    err = unprotect_c(int(id, c_int))
  end subroutine

  subroutine VELOC_Mem_clear(err)
    integer, intent(out) :: err
    err = clear_c()
  end subroutine

  subroutine VELOC_Checkpoint_begin(name, version, err)
    character(len=*), intent(in) :: name
    integer, intent(in) :: version
    integer, intent(out) :: err
    err = begin_c(c_text(name), int(version, c_int))
  end subroutine

  subroutine VELOC_Checkpoint_mem(err)
    integer, intent(out) :: err
    err = mem_c()
  end subroutine

  subroutine VELOC_Checkpoint_selective(mode, ids, err)
    integer, intent(in) :: mode, ids(:)
    integer, intent(out) :: err
    err = selective_c(int(mode, c_int), int(ids, c_int), size(ids, kind=c_int))
  end subroutine

  subroutine VELOC_Checkpoint_end(success, err)
    integer, intent(in) :: success
    integer, intent(out) :: err
    err = end_c(int(success, c_int))
  end subroutine

  subroutine VELOC_Checkpoint_wait(err)
    integer, intent(out) :: err
    err = wait_c()
  end subroutine

  subroutine VELOC_Checkpoint_finished(err)
    integer, intent(out) :: err
    err = finished_c()
  end subroutine

  subroutine VELOC_Checkpoint(name, version, err)
    character(len=*), intent(in) :: name
    integer, intent(in) :: version
    integer, intent(out) :: err
    err = checkpoint_c(c_text(name), int(version, c_int))
  end subroutine

  subroutine VELOC_Cleanup(name, err)
    character(len=*), intent(in) :: name
    integer, intent(out) :: err
    err = cleanup_c(c_text(name))
  end subroutine

  subroutine VELOC_Restart_test(name, needed_version, version)
    character(len=*), intent(in) :: name
    integer, intent(in) :: needed_version
    integer, intent(out) :: version
    version = restart_test_c(c_text(name), int(needed_version, c_int))
  end subroutine

  subroutine VELOC_Restart_begin(name, version, err)
    character(len=*), intent(in) :: name
    integer, intent(in) :: version
    integer, intent(out) :: err
    err = restart_begin_c(c_text(name), int(version, c_int))
  end subroutine

  subroutine VELOC_Recover_mem(err)
    integer, intent(out) :: err
    err = recover_c()
  end subroutine

  subroutine VELOC_Recover_selective(mode, ids, err)
    integer, intent(in) :: mode, ids(:)
    integer, intent(out) :: err
    err = recover_selective_c(int(mode, c_int), int(ids, c_int), size(ids, kind=c_int))
  end subroutine

  subroutine VELOC_Recover_size(id, bytes)
    integer, intent(in) :: id
    integer, intent(out) :: bytes
    bytes = recover_size_c(int(id, c_int))
  end subroutine

  subroutine VELOC_Restart_end(success, err)
    integer, intent(in) :: success
    integer, intent(out) :: err
    err = restart_end_c(int(success, c_int))
  end subroutine

  subroutine VELOC_Restart(name, version, err)
    character(len=*), intent(in) :: name
    integer, intent(in) :: version
    integer, intent(out) :: err
    err = restart_c(c_text(name), int(version, c_int))
  end subroutine

  subroutine VELOC_Route_file(original, routed, err)
    character(len=*), intent(in) :: original
    character(len=*), intent(out) :: routed
    integer, intent(out) :: err
    character(kind=c_char) :: path(VELOC_MAX_NAME)
    integer :: at
    routed = ''
    err = route_c(c_text(original), path)
    if (err /= VELOC_SCES) return
    do at = 1, min(VELOC_MAX_NAME, len(routed))
      if (path(at) == c_null_char) return
      routed(at:at) = path(at)
    end do
    ! A path that was cut off is an error.
    if (path(min(at, VELOC_MAX_NAME)) /= c_null_char) err = VELOC_NSCS
  end subroutine

  ! Protects an array for checkpoints of one name. Once a name has such regions, its checkpoints consist of them alone.
  subroutine VELOC_Region_protect(id, array, name, err)
    integer, intent(in) :: id
    type(*), dimension(..), target :: array
    character(len=*), intent(in) :: name
    integer, intent(out) :: err
    err = region_protect_array_c(int(id, c_int), array, c_text(name))
  end subroutine

  subroutine VELOC_Region_unprotect(id, name, err)
    integer, intent(in) :: id
    character(len=*), intent(in) :: name
    integer, intent(out) :: err
    err = region_unprotect_c(int(id, c_int), c_text(name))
  end subroutine

  subroutine VELOC_Region_clear(name, err)
    character(len=*), intent(in) :: name
    integer, intent(out) :: err
    err = region_clear_c(c_text(name))
  end subroutine

  ! Finds the newest checkpoint of another rank, in a group of any size.
  subroutine VELOC_Restart_test_rank(name, needed_version, rank, version)
    character(len=*), intent(in) :: name
    integer, intent(in) :: needed_version, rank
    integer, intent(out) :: version
    version = restart_test_rank_c(c_text(name), int(needed_version, c_int), int(rank, c_int))
  end subroutine

  subroutine VELOC_Restart_begin_rank(name, version, rank, err)
    character(len=*), intent(in) :: name
    integer, intent(in) :: version, rank
    integer, intent(out) :: err
    err = restart_begin_rank_c(c_text(name), int(version, c_int), int(rank, c_int))
  end subroutine

  subroutine VELOC_Restart_version(version, err)
    integer, intent(in) :: version
    integer, intent(out) :: err
    err = restart_version_c(int(version, c_int))
  end subroutine

  subroutine VELOC_Recover_bytes(id, bytes)
    integer, intent(in) :: id
    integer(c_int64_t), intent(out) :: bytes
    bytes = recover_bytes_c(int(id, c_int))
  end subroutine

  subroutine VELOC_Recover_size_of(version, id, bytes)
    integer, intent(in) :: version, id
    integer(c_int64_t), intent(out) :: bytes
    bytes = recover_size_of_c(int(version, c_int), int(id, c_int))
  end subroutine

  subroutine VELOC_Prefetch_enqueue(version, err)
    integer, intent(in) :: version
    integer, intent(out) :: err
    err = enqueue_c(int(version, c_int))
  end subroutine

  subroutine VELOC_Prefetch_start(err)
    integer, intent(out) :: err
    err = start_c()
  end subroutine

  subroutine VELOC_Observe(type, observer, context, err)
    integer, intent(in) :: type
    type(c_funptr), intent(in) :: observer
    type(c_ptr), intent(in) :: context
    integer, intent(out) :: err
    err = observe_c(int(type, c_int), observer, context)
  end subroutine

end module veloc
