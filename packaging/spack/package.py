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

    sanity_check_is_file = [
        "bin/tierflow",
        "bin/tierflow-agent",
        "include/tierflow.h",
        "lib/libtierflow.a",
        "lib/libtierflow.so",
    ]

    @property
    def download_instr(self):
        archive = os.path.basename(self.url)
        return f"Call spack in the directory that has {archive}, or put it into a mirror."

    def install(self, spec, prefix):
        arguments = ["xtask", "install", "--prefix", prefix]
        if spec.satisfies("+mpi"):
            arguments += ["--mpicc", spec["mpi"].mpicc]
        cargo = Executable("cargo")
        cargo(*arguments, extra_env={"CARGO_BUILD_JOBS": str(make_jobs)})

    def test_programs(self):
        """run the command and the agent"""
        for name in ["tierflow", "tierflow-agent"]:
            with test_part(self, f"test_programs_{name}", purpose=f"{name} --version"):
                program = which(join_path(self.prefix.bin, name), required=True)
                output = program("--version", output=str.split, error=str.split)
                # The agent has a version of its own.
                expected = f"{name} {self.version}" if name == "tierflow" else name
                assert expected in output
