// A heat equation in C++ that is checkpointed by Tierflow's own API, with the ranks of MPI_COMM_WORLD.
//
//   mpiexec -n 4 heat_tf DIRECTORY STEPS EVERY        (DIRECTORY must exist)
#include "heat.h"
#include "tierflow.hpp"
#include "tierflow_mpi.h"

#include <string>

static strip fields[2];

static int run(int rank, int ranks, char **argv)
{
    const std::uint64_t steps = std::stoul(argv[2]), every = std::stoul(argv[3]);
    std::uint64_t step = 0;
    tf_group group;
    MUST(tf_mpi_group(MPI_COMM_WORLD, &group));
    tierflow::Engine engine(tierflow::Options()
                                .set("device", "host")
                                .set("host_cache", "16MiB")
                                .set("external", argv[1])
                                .set("durable_in_order", "true")
                                .set("keep_newest", "2"),
                            group);
    heat_begin(fields[0], rank);
    if (auto newest = engine.latest()) {
        engine.restore(*newest, {tierflow::bytes(fields)});
        step = *newest;
    }
    if (rank == 0)
        std::printf("from %d\n", static_cast<int>(step));
    for (; step < steps;) {
        heat_step(fields[step % 2], fields[(step + 1) % 2], rank, ranks);
        step++;
        if (step % every == 0)
            engine.checkpoint(step, {tierflow::bytes(fields)});
    }
    heat_result(fields[steps % 2], rank);
    engine.close();
    return 0;
}

int main(int argc, char **argv)
{
    int rank, ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc != 4)
        heat_stop("usage: heat_tf DIRECTORY STEPS EVERY: starting");
    std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
    try {
        run(rank, ranks, argv);
    } catch (const std::exception &error) {
        heat_stop(error.what());
    }
    MPI_Finalize();
    return 0;
}
