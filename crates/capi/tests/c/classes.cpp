// Tests of the C++ headers: objects end with their scope, failures are thrown, and objects with a serializer are checkpointed.
#include "check.h"
#include "tierflow.hpp"
#include "veloc.hpp"

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sys/resource.h>
#include <vector>

static void engine(const std::string &directory)
{
    std::vector<double> field(3000, 1.5);
    tierflow::Options options;
    options.set("device", "host").set("host_cache", "1MiB").set("node_local", directory);
    {
        tierflow::Engine engine(options);
        CHECK(!engine.latest());
        engine.hint({2, 1});
        engine.checkpoint(1, {tierflow::elements(field.data(), field.size())});
        field.assign(field.size(), 2.5);
        tierflow::Slot room = engine.produce(2, field.size() * sizeof(double));
        std::memcpy(room.data(), field.data(), room.size());
        room.finish();
        {
            tierflow::Slot given_up = engine.produce(3, 10);
        }
        CHECK(engine.latest() == 2u && engine.latest(2) == 1u && engine.size(2) == 24000);
        tierflow::Engine moved(std::move(engine));
        moved.wait(60);
        CHECK(moved.is_durable(2) && moved.metrics().checkpoint.count == 1);
        CHECK(moved.versions() == std::vector<std::uint64_t>({1, 2}));
        moved.checkpoint_named(4, {{"a", tierflow::bytes(field[0])}, {"b", tierflow::bytes(field[1])}});
        CHECK(moved.regions(4).size() == 2 && moved.regions(4)[1].first == "b" && moved.region_size(4, "a") == 8);
        field[1] = 0;
        moved.restore_named(4, {{"b", tierflow::bytes(field[1])}});
        CHECK(field[1] == 2.5);
        moved.discard(4);
        moved.protect();
        CHECK(moved.resize_host_cache(1 << 20, 60) == 1 << 20);
        tierflow::Notice notice;
        CHECK(notice.left() > 1e300);
        notice.give(5);
        CHECK(notice.left() <= 5);
        CHECK(moved.report().find("checkpoint") != std::string::npos);
        moved.close();
        try {
            moved.wait();
            CHECK(!"a closed engine is no engine");
        } catch (const tierflow::Error &error) {
            CHECK(error.code() == TF_ARGUMENT && std::strlen(error.what()) > 0);
        }
    }
    tierflow::Engine again(options);
    again.restore(1, {tierflow::elements(field.data(), field.size())});
    CHECK(field[2999] == 1.5);
    tierflow::Slot lent = again.consume(2);
    CHECK(static_cast<double *>(lent.data())[0] == 2.5);
    lent.finish();
}

// Two engines share a host pool.
static void pool(const std::string &directory)
{
    tierflow::HostPool pool(8 << 20, 1 << 20);
    tierflow::Options options;
    options.set("device", "host").set("scratch", directory).set_pool(pool);
    tierflow::Engine one(options), other(options);
    double number = 3;
    one.checkpoint(1, {tierflow::bytes(number)});
    other.checkpoint(1, {tierflow::bytes(number)});
    one.end();
    other.restore(1, {tierflow::bytes(number)});
    other.end();
}

static std::ptrdiff_t threads()
{
    return std::distance(std::filesystem::directory_iterator("/proc/self/task"), std::filesystem::directory_iterator());
}

// Limits files to 1 MiB, so that writes fail as on a full disk, or lifts the limit.
static void full(bool is_full)
{
    static rlimit before;
    if (is_full)
        CHECK(getrlimit(RLIMIT_FSIZE, &before) == 0);
    rlimit limit = before;
    if (is_full)
        limit.rlim_cur = 1 << 20;
    CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
}

static tf_status closing(tierflow::Engine &engine)
{
    try {
        engine.close();
    } catch (const tierflow::Error &error) {
        return error.code();
    }
    return TF_OK;
}

static void full_disk(const std::string &directory)
{
    std::vector<double> field(1 << 18, 1.5);
    tierflow::Options options;
    options.set("device", "host").set("host_cache", "8MiB").set("external", directory);
    {
        // An engine that cannot be closed for want of room stays open, and is closed once there is room.
        tierflow::Engine engine(options);
        full(true);
        engine.checkpoint(1, {tierflow::elements(field.data(), field.size())});
        CHECK(closing(engine) == TF_STALLED);
        engine.restore(1, {tierflow::elements(field.data(), field.size())});
        full(false);
        CHECK(closing(engine) == TF_OK);
    }
    std::ptrdiff_t before = threads();
    {
        // An engine that could not be closed ends with its scope nevertheless.
        tierflow::Engine engine(options);
        CHECK(engine.latest() == 1u);
        full(true);
        engine.checkpoint(2, {tierflow::elements(field.data(), field.size())});
        CHECK(closing(engine) == TF_STALLED);
    }
    full(false);
    CHECK(threads() == before);
    {
        // An engine with a slot cannot be closed. The slot is given up, and the engine ends with its scope.
        tierflow::Engine engine(options);
        tierflow::Slot lent = engine.produce(9, 10);
        CHECK(closing(engine) == TF_ARGUMENT);
        lent.give_up();
    }
    CHECK(threads() == before);
    tierflow::Engine engine(options);
    CHECK(engine.latest() == 1u);
    full(true);
    engine.checkpoint(3, {tierflow::elements(field.data(), field.size())});
    CHECK(tf_close(engine.handle()) == TF_STALLED && tf_end(engine.handle()) != TF_OK);
    CHECK(std::strstr(tf_error_message(), "version 3 is lost") != nullptr);
    CHECK(tf_end(engine.handle()) == TF_CLOSED);
    full(false);
}

// Returns the newest version of the client's engine.
static std::uint64_t newest()
{
    std::uint64_t newest = 0;
    CHECK(tf_latest(VELOC_Engine(), UINT64_MAX, &newest) == TF_OK);
    return newest;
}

static void client(const std::string &config)
{
    veloc::client_t *client = veloc::get_client(0u, config);
    CHECK(client == veloc::get_client(0u, config));
    int number = 7, seen = 0;
    std::vector<int> list{1, 2, 3};
    std::string text = "first", other = "kept";
    CHECK(!client->register_observer(9, [](const std::string &, int) {}));
    CHECK(!client->register_observer(9, [](const std::string &, int) {}));
    CHECK(client->register_observer(VELOC_OBSERVE_CKPT_END, [&](const std::string &, int version) { seen = version; }));
    auto write = [&](std::ostream &out) {
        for (int element : list)
            out.write(reinterpret_cast<char *>(&element), sizeof element);
    };
    auto read = [&](std::istream &in) {
        list.clear();
        for (int element; in.read(reinterpret_cast<char *>(&element), sizeof element);)
            list.push_back(element);
        return true;
    };
    auto write_text = [&](std::ostream &out) { out << text; };
    auto read_text = [&](std::istream &in) { return static_cast<bool>(std::getline(in, text)); };
    CHECK(client->mem_protect(0, &number, 1, sizeof number, "mixed"));
    CHECK(client->mem_protect(1, write, read, "mixed"));
    CHECK(client->mem_protect(2, write_text, read_text));
    CHECK(client->checkpoint("mixed", 4) && seen == 4);
    CHECK(client->checkpoint("text", 1) && seen == 1);
    number = 0;
    list.assign(100, 9);
    text = "second";
    CHECK(client->restart_test("mixed", 0) == 4);
    CHECK(client->restart("mixed", 4) && number == 7 && list == std::vector<int>({1, 2, 3}));
    CHECK(text == "second" && client->restart("text", 1) && text == "first");
    list.clear();
    CHECK(client->restart_begin("mixed", 4) && client->recover_size(1) == 12 && client->recover_size(9) == 0);
    CHECK(client->recover_mem(VELOC_RECOVER_SOME, {0}) && list.empty());
    CHECK(client->recover_mem(VELOC_RECOVER_REST, {0}) && list.size() == 3);
    CHECK(client->restart_end(true));
    CHECK(!client->restart("mixed", 5));
    CHECK(client->checkpoint_begin("file", 1));
    const std::string routed = client->route_file(config + ".copy");
    std::ofstream(routed) << "text";
    CHECK(client->checkpoint_end(true) && client->checkpoint_wait() && client->checkpoint_finished());
    // A failed wait does not keep the next checkpoint from its number, as the other ranks begin theirs.
    const std::string later = config + ".later";
    CHECK(client->checkpoint_begin("file", 2));
    std::ofstream(client->route_file(later + "/copy")) << "text";
    CHECK(client->checkpoint_end(true));
    const std::uint64_t before = newest();
    CHECK(!client->checkpoint("text", 2) && std::filesystem::create_directory(later));
    CHECK(client->checkpoint("text", 3) && newest() >> 8 == (before >> 8) + 2);
    CHECK(client->mem_unprotect(0, "mixed") && !client->mem_unprotect(0, "mixed"));
    client->mem_clear("mixed");
    CHECK(client->cleanup("mixed"));
    delete client;
    // After the client was deleted, `get_client` makes another one, which finds the files of the first.
    client = veloc::get_client(0u, config);
    CHECK(client == veloc::get_client(0u, config));
    text = "third";
    CHECK(client->mem_protect(2, write_text, read_text) && client->restart_test("text", 0) == 3);
    CHECK(client->restart("text", 3) && text == "first");
    delete client;
}

struct Still {
    double number = 1;
    int advanced = 0;
    void advance(std::uint64_t) { advanced++; }
    void end_forward() {}
    void reverse(std::uint64_t) {}
    tierflow::Region state() { return tierflow::bytes(number); }
};

static bool refuses(tierflow::Engine &engine, tierflow::Schedule &schedule, Still &still)
{
    try {
        tierflow::run_adjoint(engine, schedule, still);
    } catch (const std::invalid_argument &) {
        return true;
    }
    return false;
}

static void runs_that_are_refused()
{
    tierflow::Engine engine(tierflow::Options().set("device", "host").set("host_cache", "1MiB"));
    tierflow::Engine discards(tierflow::Options().set("device", "host").set("host_cache", "1MiB").set("after_restore", "discard"));
    tf_machine machine = {};
    machine.forward = machine.backward = 1e-3;
    machine.state = sizeof(double);
    machine.device = 8 * machine.state;
    tierflow::Schedule schedule(machine, 5);
    Still still;
    CHECK(refuses(discards, schedule, still) && still.advanced == 0);
    CHECK(!refuses(engine, schedule, still));
    CHECK(refuses(engine, schedule, still));
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    const std::string directory = argv[1], config = directory + "/veloc.cfg";
    CHECK(std::system(("mkdir " + directory + "/node").c_str()) == 0);
    engine(directory + "/node");
    pool(directory);
    runs_that_are_refused();
    full_disk(directory + "/full");
    std::ofstream(config) << "scratch = " << directory << "/s\npersistent = " << directory << "/p\nhost_cache = 1MiB\n";
    client(config);
    return 0;
}
