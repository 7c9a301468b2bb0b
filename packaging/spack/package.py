import os

from spack_repo.builtin.build_systems.generic import Package

from spack.package import *


class Tierflow(Package):
    """A checkpoint cache over GPU memory, host memory, disk and external storage."""

    # There is no public address yet: the archive lies where spack is called, or in a mirror.
    manual_download = True
    url = f"file://{os.getcwd()}/tierflow-0.1.0.tar.xz"

    license("MIT OR Apache-2.0")

    version("0.1.0", sha256="@SHA256@")

    variant("mpi", default=True, description="Build libveloc-client, which links to this MPI")

    depends_on("c", type="build")
    depends_on("rust@1.95:", type="build")
    depends_on("mpi", when="+mpi")

    def install(self, spec, prefix):
        arguments = ["xtask", "install", "--prefix", prefix]
        if spec.satisfies("+mpi"):
            arguments += ["--mpicc", spec["mpi"].mpicc]
        Executable("cargo")(*arguments)
